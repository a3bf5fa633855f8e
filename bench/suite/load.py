"""Running weir-load."""
import json
import os
import subprocess


TRACING = "/sys/kernel/tracing"


class Failed(Exception):
    pass


def show_tracepoints():
    """Counting kernel entries takes the number of a tracepoint, which is in a file system that some machines mount
    only when somebody asks for it. perf does that, too."""
    if os.geteuid() == 0 and os.path.isdir(TRACING) and not os.path.exists(os.path.join(TRACING, "events")):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], stderr=subprocess.DEVNULL, check=False)


class Load:
    """weir-load on a CPU of its own."""

    def __init__(self, program, cpu):
        self.program, self.cpu = program, cpu

    def run(self, server, *args, timeout_s=300, is_pinned=True):
        """One run over that server: what it printed (raw), and its numbers per message."""
        done = subprocess.run([self.program, "--json", "--watch", str(server.pid), *map(str, args), server.address],
                              text=True, capture_output=True, timeout=timeout_s,
                              preexec_fn=(lambda: os.sched_setaffinity(0, {self.cpu})) if is_pinned else None)
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        return per_message(json.loads(done.stdout))


def per_message(raw):
    messages, server, times = raw["messages"], raw["server"], raw["latency_ns"]
    result = {"raw": raw}
    if messages == 0 or raw["seconds"] == 0:
        return result
    result.update(
        rate=messages / raw["seconds"],
        cpu_ns=server["cpu_ns"] / messages,
        p50_us=times["p50"] / 1e3,
        p99_us=times["p99"] / 1e3,
        p999_us=times["p999"] / 1e3,
        server_busy=server["cpu_ns"] / 1e9 / raw["seconds"],
        client_busy=raw["client_cpu_ns"] / 1e9 / raw["seconds"],
    )
    if server["user_share"] >= 0:
        result["user_ns"] = result["cpu_ns"] * server["user_share"]
        result["system_ns"] = result["cpu_ns"] - result["user_ns"]
    if server["entries"] >= 0:
        result["entries"] = server["entries"] / messages
    return result
