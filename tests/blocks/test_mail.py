"""Mail by a server of one's own: what is sent, and what never is."""

import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest
from prefect.blocks.abstract import NotificationError

from partwise.blocks import mail
from partwise.blocks.mail import SmtpMail


class _Handler(socketserver.StreamRequestHandler):
    server: "MailServer"

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self) -> None:
        if self.server.is_silent:
            self.rfile.read()
            return
        self.say("220 here")
        while line := self.rfile.readline():
            self.server.lines.append(line.decode().strip().upper())
            match line.decode().split()[0].upper():
                case "EHLO":
                    self.say("250-here")
                    self.say(f"250 {self.server.offers}")
                case "RCPT" if b"nobody" in line:
                    self.say("550 there is no nobody")
                case "DATA":
                    self.say("354 go on")
                    content = b""
                    while not content.endswith(b"\r\n.\r\n"):
                        content += self.rfile.readline()
                    content = content[:-5].replace(b"\r\n..", b"\r\n.")
                    self.server.mails.append(message_from_bytes(content, policy=default))
                    self.say("250 taken")
                case "STARTTLS":
                    self.say("220 go on")
                    self.wfile.write(b"this is no TLS\r\n")
                case "QUIT":
                    self.say("221 bye")
                    return
                case _:
                    self.say("250 fine")


class MailServer(socketserver.ThreadingTCPServer):
    """Takes mail in plaintext."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mails: list[Any] = []
        self.lines: list[str] = []
        self.offers = "SIZE"
        self.is_silent = False

    def block(self, **changes: object) -> SmtpMail:
        """Return a block of this server."""
        given = {"host": "127.0.0.1", "port": self.server_address[1], "security": "none"}
        people = {"sender": "Nights <night@here.org>", "recipients": ["ops@here.org", "b@c.org"]}
        return SmtpMail.model_validate({**given, **people, **changes})


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        yield server
        server.shutdown()


def test_a_mail_has_all_that_it_is_to_have(server: MailServer) -> None:
    server.block().notify("3 of 20 failed:\nZürich, .dots\n.\nend", "FAILURE: night")
    [mail] = server.mails
    assert (mail["From"], mail["To"]) == ("Nights <night@here.org>", "ops@here.org, b@c.org")
    assert (mail["Subject"], mail["Date"] is not None) == ("FAILURE: night", True)
    assert mail.get_content().splitlines() == ["3 of 20 failed:", "Zürich, .dots", ".", "end"]
    assert [line for line in server.lines if line.startswith("RCPT")] == [
        "RCPT TO:<OPS@HERE.ORG>",
        "RCPT TO:<B@C.ORG>",
    ]


def test_a_key_in_a_subject_begins_no_header_of_its_own(server: MailServer) -> None:
    server.block().notify("body", "key\r\nBcc: all@here.org\r\n\r\nother body")
    [mail] = server.mails
    assert mail["Bcc"] is None
    assert mail["Subject"] == "key Bcc: all@here.org other body"
    assert mail.get_content().strip() == "body"


@pytest.mark.parametrize("offers", ["SIZE", "STARTTLS"])
def test_nothing_is_sent_in_plaintext_where_it_is_to_be_encrypted(
    offers: str, server: MailServer
) -> None:
    """By a server that offers no encryption, and by one that only says so."""
    server.offers = offers
    block = server.block(security="starttls", user="night", password="secret")
    with block.raise_on_failure(), pytest.raises(NotificationError) as caught:
        block.notify("body", "subject")
    assert "No mail went out by 127.0.0.1" in caught.value.log
    assert server.mails == []
    assert not [line for line in server.lines if line.startswith(("AUTH", "MAIL"))]


def test_what_is_not_taken_is_told(server: MailServer, caplog, monkeypatch) -> None:
    block = server.block(recipients=["nobody@here.org"])
    with block.raise_on_failure(), pytest.raises(NotificationError) as caught:
        block.notify("body", "subject")
    assert "there is no nobody" in caught.value.log
    block.notify("body", "subject")
    assert "there is no nobody" in caplog.text
    monkeypatch.setattr(mail, "ANSWER_S", 0.3)
    server.is_silent = True
    with block.raise_on_failure(), pytest.raises(NotificationError) as caught:
        block.notify("body", "subject")
    assert "timed out" in caught.value.log


def test_a_recipient_that_is_refused_is_told_and_the_others_get_it(server, caplog) -> None:
    block = server.block(recipients=["ops@here.org", "nobody@here.org"])
    with block.raise_on_failure(), pytest.raises(NotificationError) as caught:
        block.notify("body", "subject")
    said = "to all recipients but nobody@here.org (550 there is no nobody)"
    assert said in caught.value.log
    assert len(server.mails) == 1
    block.notify("body", "subject")
    assert said in caplog.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"user": "a", "password": "b"}, "go over the network as it is"),
        ({"user": "a", "security": "tls"}, "belong together"),
        ({"password": "b", "security": "tls"}, "belong together"),
        ({"recipients": []}, "at least 1 item"),
        ({"security": "ssl"}, "'starttls', 'tls' or 'none'"),
    ],
)
def test_settings_that_would_tell_a_secret_or_send_nothing_are_refused(
    changes: dict[str, object], said: str, server: MailServer
) -> None:
    with pytest.raises(ValueError, match=said):
        server.block(**changes)


def test_the_server_of_up_knows_its_class() -> None:
    """Else automations could not send by it."""
    code = (
        "import partwise.flows.operations.prefect_server\n"
        "from prefect.blocks.abstract import NotificationBlock\n"
        "print([each.__name__ for each in NotificationBlock.__subclasses__()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "SmtpMail" in done.stdout
