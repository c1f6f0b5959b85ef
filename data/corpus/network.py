"""Find out within seconds whether a host can be reached, where libraries retry for minutes."""

import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence

TIMEOUT = 5.0  # seconds for the first of the hosts to answer
HTTPS_PORT = 443


def find_unreachable(hosts: Sequence[str], timeout: float = TIMEOUT) -> str:
    """Return why none of several hosts can be reached; "" if one of them can.

    With a proxy in the environment (https_proxy), the proxy is tried in their place.

    Args:
      hosts: names of hosts that serve HTTPS.
      timeout: seconds after which a host that does not answer counts as unreachable.
    """
    addresses = [(host, HTTPS_PORT) for host in hosts]
    if proxy := urllib.request.getproxies().get("https"):
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        addresses = [(parts.hostname or proxy, parts.port or HTTPS_PORT)]
    outcomes: dict[tuple[str, int], str] = {}
    threads = [
        threading.Thread(target=_try_host, args=(address, timeout, outcomes), daemon=True)
        for address in addresses
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout
    while time.monotonic() < end and any(thread.is_alive() for thread in threads):
        if "" in list(outcomes.values()):
            break
        time.sleep(0.01)
    reasons = [outcomes.get(address, f"no answer within {timeout:g} s") for address in addresses]
    if "" in reasons:
        return ""
    return "; ".join(f"{host}: {reason}" for (host, _), reason in zip(addresses, reasons))


def _try_host(
    address: tuple[str, int], timeout: float, outcomes: dict[tuple[str, int], str]
) -> None:
    """Connect to an address and record why it failed, or ""; a name may take longer to resolve."""
    try:
        socket.create_connection(address, timeout=timeout).close()
        outcomes[address] = ""
    except OSError as error:
        outcomes[address] = error.strerror or str(error)
