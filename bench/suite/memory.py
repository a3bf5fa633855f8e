"""What a connection that does nothing takes, and what a server takes to start."""
from .servers import Server

IDLE = 10000
IDLE_TLS = 1000
STARTS = 6


def idle(kind, directory, load, cpu, connections, more=(), load_args=()):
    """Bytes of one of so many idle connections: of the server's own memory, and of the kernel's. The kernel's are taken
    from all of its objects, and half of them are the client's."""
    with Server(kind.command(directory, *more), cpu) as server:
        raw = load.run(server, "--mode", "idle", "--connections", connections, "--warmup", 0.2, "--duration", 0.3,
                       *load_args)["raw"]
    user = (raw["server"]["resident_kib"] - raw["server"]["resident_kib_before"]) * 1024 / connections
    kernel = (raw["kernel_kib"] - raw["kernel_kib_before"]) * 1024 / connections / 2
    return {"user": user, "kernel": kernel}


def start(kind, directory, cpu):
    """From its start until it listens, in milliseconds; and what it has of its own by then, in KiB."""
    with Server(kind.command(directory), cpu) as server:
        with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
        return {"ms": server.start_s * 1e3, "resident_kib": int(fields["VmRSS"].split()[0])}
