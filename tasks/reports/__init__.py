"""What a person looks at after a run: one file with pictures, which opens anywhere."""

from partwise.tasks.reports.report import render_report, write_report

__all__ = ["render_report", "write_report"]
