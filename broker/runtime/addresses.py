"""What a network address says about who is at the other end."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether it is an address of this machine that no other machine can use."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
