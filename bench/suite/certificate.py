"""The certificate that all servers have in a run over TLS: made when it begins, gone when it ends."""
import os
import shutil
import subprocess
import tempfile


class Certificate:
    """Self-signed, of the kind most servers have by now: ECDSA over P-256."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="weir-bench-")
        self.files = [os.path.join(self.directory, name) for name in ("certificate.pem", "key.pem")]
        try:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-days", "2", "-subj", "/CN=localhost", "-out", self.files[0], "-keyout", self.files[1]],
                           check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pass  # no server can read it then, and each is named as missing
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory)

    @property
    def args(self):
        """For a server."""
        return ["--cert", self.files[0], "--key", self.files[1]]
