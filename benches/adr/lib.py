"""A private PostgreSQL, pgbench runs and a minimal protocol client. Standard library only."""
import atexit, glob, os, pwd, re, shutil, signal, socket, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
SQL = os.path.join(HERE, "sql")


def find_bin(name):
    places = glob.glob("/usr/lib/postgresql/*/bin")
    places.sort(key=lambda p: int(p.split("/")[-2]) if p.split("/")[-2].isdigit() else 0, reverse=True)
    for directory in os.environ.get("PATH", "").split(os.pathsep) + places:
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK):
            return path
    sys.exit(f"{name}: not found on PATH nor in /usr/lib/postgresql/*/bin")


class Error(Exception):
    pass


class Connection:
    """The simple query protocol over a Unix socket; values come back as text."""

    def __init__(self, directory, options=""):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.path.join(directory, ".s.PGSQL.5432"))
        self.buffer = b""
        body = struct.pack("!i", 196608)
        for key, value in (("user", "postgres"), ("database", "postgres"), ("options", options)):
            if value:
                body += key.encode() + b"\0" + value.encode() + b"\0"
        body += b"\0"
        self.sock.sendall(struct.pack("!i", len(body) + 4) + body)
        self._read()

    def _fill(self, size):
        while len(self.buffer) < size:
            part = self.sock.recv(1 << 20)
            if not part:
                raise Error("the server closed the connection")
            self.buffer += part

    def _read(self):
        rows, error, at = [], None, 0
        while True:
            self._fill(at + 5)
            kind, length = self.buffer[at:at + 1], struct.unpack_from("!i", self.buffer, at + 1)[0]
            self._fill(at + 1 + length)
            if kind == b"D":
                (count,), pos, row = struct.unpack_from("!h", self.buffer, at + 5), at + 7, []
                for _ in range(count):
                    (size,) = struct.unpack_from("!i", self.buffer, pos)
                    pos += 4
                    row.append(None if size < 0 else self.buffer[pos:pos + size].decode())
                    pos += max(size, 0)
                rows.append(row)
            elif kind == b"E":
                error = self.buffer[at + 5:at + 1 + length].replace(b"\0", b" ").decode()
            at += 1 + length
            if kind == b"Z":
                self.buffer = self.buffer[at:]
                if error:
                    raise Error(error)
                return rows

    def query(self, text):
        body = text.encode() + b"\0"
        self.sock.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self._read()

    def one(self, text):
        return self.query(text)[0][0]

    def close(self):
        self.sock.sendall(b"X\0\0\0\4")
        self.sock.close()


class Server:
    """initdb and postgres in a mktemp directory, Unix socket only; gone at exit."""

    def __init__(self, **settings):
        self.dir = tempfile.mkdtemp(prefix="laneway-adr-")
        self.asuser = []
        if os.geteuid() == 0:  # postgres refuses to run as root
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                sys.exit("run this as a normal user, or create the user postgres")
            os.chown(self.dir, user.pw_uid, user.pw_gid)
            self.asuser = ["runuser", "-u", "postgres", "--"]
        self.data = os.path.join(self.dir, "data")
        self.process = None
        atexit.register(self.stop)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        self.call(find_bin("initdb"), "-D", self.data, "-U", "postgres", "--data-checksums", "-A", "trust",
                  "-E", "UTF8", "--locale=C")
        base = dict(listen_addresses="", unix_socket_directories=self.dir, port=5432, fsync="on",
                    synchronous_commit="on", shared_buffers="2GB", max_wal_size="8GB",
                    max_locks_per_transaction=512, max_connections=50, wal_keep_size="2GB",
                    maintenance_work_mem="256MB", jit="off")
        base.update(settings)
        with open(os.path.join(self.data, "postgresql.conf"), "a") as conf:
            for name, value in base.items():
                conf.write(f"{name} = '{value}'\n")
        self.log = open(os.path.join(self.dir, "log"), "w")
        self.process = subprocess.Popen(self.asuser + [find_bin("postgres"), "-D", self.data],
                                        stdout=self.log, stderr=self.log, cwd="/")
        for _ in range(300):
            try:
                self.connect().close()
                return
            except (OSError, Error):
                time.sleep(0.1)
        sys.exit("postgres did not start:\n" + open(self.log.name).read())

    def call(self, *command):
        return subprocess.run(self.asuser + list(command), check=True, stdout=subprocess.PIPE, text=True,
                              cwd="/").stdout

    def connect(self, options=""):
        return Connection(self.dir, options)

    def script(self, name, **values):
        """Runs sql/<name>, with psql-like :name substitution, on a connection of its own."""
        text = open(os.path.join(SQL, name)).read()
        for key, value in values.items():
            text = re.sub(rf"(?<!:):{key}\b", str(value), text)
        connection = self.connect()
        connection.query(text)
        connection.close()

    def bench(self, name, seconds, options="", clients=2, progress=0, **defines):
        """Starts pgbench on sql/<name>; .communicate() and tps() give the rate."""
        env = dict(os.environ, PGOPTIONS=options, PGHOST=self.dir, PGPORT="5432", PGUSER="postgres",
                   PGDATABASE="postgres")
        command = [find_bin("pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", str(clients),
                   "-T", str(seconds), "-f", os.path.join(SQL, name)]
        if progress:
            command += ["-P", str(progress)]
        for key, value in defines.items():
            command += ["-D", f"{key}={value}"]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def cpu(self):
        """Seconds of CPU used so far by the postmaster, its children and those it has reaped (Linux)."""
        def ticks(pid, first, last):
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            return sum(int(x) for x in fields[first:last])

        time.sleep(0.2)  # let exited backends be reaped
        postmaster = open(os.path.join(self.data, "postmaster.pid")).readline().strip()
        total = ticks(postmaster, 11, 15)
        for child in open(f"/proc/{postmaster}/task/{postmaster}/children").read().split():
            try:
                total += ticks(child, 11, 13)
            except FileNotFoundError:
                pass
        return total / os.sysconf("SC_CLK_TCK")

    def wal_stats(self, start, end):
        """(bytes of records, bytes of full page images) between two LSNs."""
        out = self.call(find_bin("pg_waldump"), "-p", os.path.join(self.data, "pg_wal"), "--stats", "-s", start,
                        "-e", end)
        total = [line for line in out.splitlines() if line.startswith("Total")][0]
        figures = [int(x) for x in re.findall(r"(?<![\d.\[])\d+(?![\d.%])", total)]
        return figures[1], figures[2]

    def stop(self):
        if self.process and self.process.poll() is None:
            pid = int(open(os.path.join(self.data, "postmaster.pid")).readline())
            os.kill(pid, signal.SIGINT)  # fast shutdown
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def tps(process):
    out, err = process.communicate()
    found = re.search(r"tps = ([\d.]+)", out)
    if process.returncode or not found:
        sys.exit(f"pgbench failed:\n{out}{err}")
    return float(found.group(1))
