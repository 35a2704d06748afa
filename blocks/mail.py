"""Mail by a server of one's own, for notifications: of mail, Prefect itself knows only Sendgrid.

Prefect finds the class of a saved block once this module is imported: in the server too, which
sends what automations tell it to.
"""

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Literal, Self

from prefect.blocks.abstract import NotificationBlock, NotificationError
from prefect.utilities.asyncutils import run_sync_in_worker_thread, sync_compatible
from pydantic import Field, HttpUrl, SecretStr, model_validator

ANSWER_S = 30.0
"""For so long a mail server may say nothing."""


class SmtpMail(NotificationBlock):
    """Mail that a server of your own sends, by SMTP.

    Raises:
        ValueError: A password would go over the network in plaintext, or has no user.

    Example:
        Save one, and send a test:
        ```python
        from partwise.blocks.mail import SmtpMail

        SmtpMail(
            host="smtp.example.org",
            user="partwise",
            password="...",
            sender="partwise@example.org",
            recipients=["ops@example.org"],
        ).save("ops")
        ```
        ```bash
        partwise doctor --notify smtp-mail/ops
        ```
    """

    _block_type_name = "SMTP Mail"
    _block_type_slug = "smtp-mail"
    _logo_url = HttpUrl(
        "https://raw.githubusercontent.com/PrefectHQ/prefect/"
        "420d0d6a78bb6df1fc18bcf188fdad43c1d22ea9/assets/block-logos/email.png"
    )
    _documentation_url = HttpUrl("https://docs.python.org/3/library/smtplib.html")

    host: str = Field(min_length=1, description="The mail server, such as smtp.example.org.")
    port: int = Field(default=587, gt=0, lt=65536, description="465 is usual with tls.")
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls",
        description="How the connection is encrypted: after its beginning, from it, or not at all.",
    )
    user: str = Field(default="", description="Empty: the server wants no login.")
    password: SecretStr | None = Field(default=None, description="Of the user.")
    sender: str = Field(min_length=3, description="Such as Nights <partwise@example.org>.")
    recipients: list[str] = Field(min_length=1, description="Who gets it.")

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if (self.password is None) != (not self.user):
            raise ValueError("user and password belong together: give both or none.")
        if self.password is not None and self.security == "none":
            raise ValueError(
                "security is 'none', and the password would go over the network as it is: choose "
                "starttls or tls."
            )
        return self

    @sync_compatible
    async def notify(self, body: str, subject: str | None = None) -> None:
        """Send a mail to all recipients.

        Raises:
            NotificationError: It was not taken, for one of them or all, within `raise_on_failure`;
                else the log says so.
        """
        try:
            refused: dict[str, tuple[int, bytes]] = await run_sync_in_worker_thread(
                self._send, body, subject or ""
            )
        except (OSError, smtplib.SMTPException, ValueError) as error:
            self._tell(
                f"No mail went out by {self.host}:{self.port}: {type(error).__name__}: {error}",
                error,
            )
            return
        if refused:
            whom = ", ".join(
                f"{name} ({code} {answer.decode(errors='replace')})"
                for name, (code, answer) in refused.items()
            )
            self._tell(f"{self.host}:{self.port} sends a mail to all recipients but {whom}")

    def _tell(self, sentence: str, cause: Exception | None = None) -> None:
        if self._raise_on_failure:
            raise NotificationError(sentence) from cause
        self.logger.warning("%s", sentence)

    def _send(self, body: str, subject: str) -> dict[str, tuple[int, bytes]]:
        """Send a mail; returns the recipients that the server refused, and what it said."""
        message = EmailMessage()
        message["From"], message["To"] = self.sender, ", ".join(self.recipients)
        # A line break would begin a header of its own.
        message["Subject"] = " ".join(subject.split())
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="partwise")
        message.set_content(body)
        with self._connection() as connection:
            if self.password is not None:
                connection.login(self.user, self.password.get_secret_value())
            return connection.send_message(message)

    def _connection(self) -> smtplib.SMTP:
        if self.security == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.host, self.port, timeout=ANSWER_S, context=context)
        connection = smtplib.SMTP(self.host, self.port, timeout=ANSWER_S)
        try:
            if self.security == "starttls":
                connection.starttls(context=ssl.create_default_context())
        except BaseException:
            connection.close()
            raise
        return connection
