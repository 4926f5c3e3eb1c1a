"""Classifies network addresses."""

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
