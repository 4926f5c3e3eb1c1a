"""A sensor and a dashboard, both stock programs, on four brokers: two are killed, a link is cut, nothing is lost."""

import shutil
import subprocess
import time

import pytest

pytestmark = pytest.mark.skipif(
    not (shutil.which("mosquitto_pub") and shutil.which("mosquitto_sub")),
    reason="mosquitto_pub and mosquitto_sub are not installed (Debian: mosquitto-clients)",
)

TREE = {"cloud": None, "office": "cloud", "site": "cloud", "gate": "site"}
READINGS = [f"reading {number}" for number in range(300)]


def command(program, address, client_id, *options):
    host, port = address
    return [program, "-h", host, "-p", str(port), "-i", client_id, "-q", "1", *options]


@pytest.mark.parametrize("routing", ["identity", "flooding"])
def test_dashboard_gets_every_reading(broker_network, routing):
    network = broker_network(TREE, routing=routing, durability="process")
    dashboard = command("mosquitto_sub", network.address("office"), "dashboard", "-c", "-t", "plant/#")
    sensor = command("mosquitto_pub", network.address("gate"), "sensor", "-t", "plant/boiler", "-l")

    subprocess.run([*dashboard, "-E"], check=True, timeout=30)  # -E: subscribes and exits; -c: keeps its session
    network.wait_until_calm()  # now all brokers know of the subscription

    with (  # -W: the dashboard ends after 60 s at the latest, and so does this test
        subprocess.Popen([*dashboard, "-W", "60"], stdout=subprocess.PIPE, text=True) as subscriber,
        subprocess.Popen(sensor, stdin=subprocess.PIPE, text=True) as publisher,
    ):

        def publish(*lines):
            publisher.stdin.write("".join(f"{line}\n" for line in lines))
            publisher.stdin.flush()

        publish(*READINGS[:100])
        received = [next(subscriber.stdout).rstrip("\n") for _ in READINGS[:100]]

        network.cut("office", "cloud")
        network.crash("cloud")  # kill -9
        publish(*READINGS[100:200])
        while network.under_way("site") < 100:  # the readings wait at site, which has acknowledged them ...
            time.sleep(0.05)
        network.crash("site")  # ... and is killed as well
        publish(*READINGS[200:])
        network.restart("cloud")
        network.restart("site")
        network.disconnect("office", "dashboard")  # resets its connection; mosquitto_sub reconnects by itself
        network.repair("office", "cloud")

        publish("end")
        while received[-1] != "end":
            received.append(next(subscriber.stdout).rstrip("\n"))
        subscriber.terminate()

    assert publisher.returncode == 0  # every reading was acknowledged
    assert list(dict.fromkeys(received)) == [*READINGS, "end"]  # in order; at QoS 1 some may come twice
