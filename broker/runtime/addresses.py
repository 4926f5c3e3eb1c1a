"""Classifies and writes network addresses."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether the address reaches this machine and cannot be used by any other machine."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_any(host: str) -> bool:
    """Whether a server that listens on this host listens on all addresses of its machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def written(host: str, port: int) -> str:
    """HOST:PORT, as brokers tell it to one another."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
