"""The block that a person reads when all is ready."""

from __future__ import annotations

from controlplane.stack.home import Endpoints, Home


def describe_ready(home: Home, endpoints: Endpoints, *, first_boot: bool, took_s: float) -> str:
    """Addresses and where to find the credentials; on the first boot the credentials themselves."""
    rows = [
        ("pages", f"{endpoints.web}/"),
        ("REST API", f"{endpoints.web}/api/docs/"),
        ("inference", f"{endpoints.gateway}/v1"),
        *_credential_rows(home, first_boot=first_boot),
        ("stop", "Ctrl-C"),
    ]
    width = max(len(label) for label, _ in rows)
    rule = "─" * 72
    lines = [f"  {label:<{width}}  {value}" for label, value in rows]
    return "\n".join(["", rule, f"  Shoal is ready after {took_s:.1f} s", "", *lines, rule, ""])


def _credential_rows(home: Home, *, first_boot: bool) -> list[tuple[str, str]]:
    if not first_boot:
        return [("sign in", f"see {home.credentials_path}")]
    made = home.read_credentials()
    if made is None or made.password is None:
        rows = [("sign in", "with an account of the existing database")]
    else:
        shown_once = f"shown this once, kept in {home.credentials_path}"
        rows = [("user", made.username or ""), ("password", f"{made.password}   ({shown_once})")]
    if made is not None and made.api_key is not None:
        rows.append(("API key", f"{made.api_key}   (in the same file)"))
    return rows
