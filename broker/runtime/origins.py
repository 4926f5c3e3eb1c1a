"""Which web pages may use a server of ours: the Origin and Host headers of HTTP requests.

A browser lets any page send requests to any address that the browser's machine can reach, and says in Origin which
page it was. Whoever owns a name can also let it point to another machine after the page was loaded (DNS rebinding);
then Host has that name. Programs that are not browsers can send what they like, so this protects from pages only.
"""

import ipaddress
from urllib.parse import urlsplit


def host_of(authority: str) -> str | None:
    """The host in HOST or HOST:PORT, in lower case; None if there is none."""
    try:
        return urlsplit(f"//{authority}").hostname
    except ValueError:
        return None


def is_fixed(host: str) -> bool:
    """Whether no stranger decides to which machine this host leads: it is an address, or no name of the public DNS."""
    name = host.rstrip(".")
    if "." not in name or name.endswith(".localhost"):
        return bool(name)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_own_page(origin: str | None, host: str | None) -> bool:
    """Whether a request comes from a page of the very server that it goes to, or from no page at all."""
    return origin is None or origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def may_connect(origin: str | None, host: str | None, allowed: tuple[str, ...] | None, is_open: bool) -> bool:
    """Whether a page may open a WebSocket. `is_open`: clients need no password.

    `allowed` are the origins in the configuration. Where there are none, the page must come from the machine that it
    connects to, unless clients need a password: MQTT sends no cookies, so the page has to know the password.
    """
    if origin is None:
        return True
    if allowed is not None:
        return "*" in allowed or origin.lower() in allowed
    if not is_open:
        return True
    own = host_of(host or "")
    return own is not None and is_fixed(own) and host_of(origin.partition("://")[2]) == own
