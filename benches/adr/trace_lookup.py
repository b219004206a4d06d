"""How long it takes to find all hops of one trace, on a warm and on a brand-new connection."""
import hashlib, time
from lib import Server

COLUMNS = 'partition_id, "offset", published_at, trace_id, producer, content_type'


def union(parts):
    return " UNION ALL ".join(f"({part})" for part in parts)


def prefix(trace):
    return int.from_bytes(bytes.fromhex(trace)[:8], "big", signed=True)


class Lookup:
    def __init__(self, server, messages):
        self.per = messages // 40
        self.server = server
        self.leafs = [f"message_{p}_{s}" for p in range(1, 9) for s in range(5)]
        self.leafs += [f"message_{p}_{s}" for p in range(9, 1009) for s in range(2)]
        self.chunks = [self.leafs[i:i + 64] for i in range(0, len(self.leafs), 64)]

    def leaf(self, partition, offset):
        return f"message_{partition}_{int(offset) // (self.per if int(partition) <= 8 else 100)}"

    def prepare(self, connection):
        connection.query("SET plan_cache_mode = force_generic_plan")
        for i, chunk in enumerate(self.chunks):
            connection.query(f"PREPARE b{i}(uuid) AS " + union(
                f"SELECT {COLUMNS} FROM {leaf} WHERE trace_id = $1" for leaf in chunk))

    def segments_prepared(self, connection, trace):
        return sum((connection.query(f"EXECUTE b{i}('{trace}')") for i in range(len(self.chunks))), [])

    def segments(self, connection, trace):
        return sum((connection.query(union(f"SELECT {COLUMNS} FROM {leaf} WHERE trace_id = '{trace}'" for leaf in chunk))
                    for chunk in self.chunks), [])

    def hop(self, connection, trace):
        found = connection.query(f"SELECT partition_id, \"offset\" FROM hop WHERE trace_id = '{trace}'")
        return connection.query(union(
            f'SELECT {COLUMNS} FROM {self.leaf(p, o)} WHERE "offset" = {o}' for p, o in found))

    def blocks(self, connection, trace, root=False):
        found = connection.query("SELECT partition_id, first_offset, first_offset + messages - 1"
                                 f" FROM hop_block WHERE traces @> ARRAY[{prefix(trace)}]::bigint[]")
        return connection.query(union(
            f'SELECT {COLUMNS} FROM {"message" if root else self.leaf(p, first)}'
            f" WHERE partition_id = {p} AND \"offset\" BETWEEN {first} AND {last} AND trace_id = '{trace}'"
            for p, first, last in found))

    def blocks_root(self, connection, trace):
        return self.blocks(connection, trace, root=True)

    def runs(self, connection, trace):
        x = prefix(trace)
        found = connection.query(
            f"SELECT partition_id, first_offset + i - 1 FROM tail, unnest(array_positions(traces, {x})) i"
            f" WHERE {x} = ANY (traces) UNION ALL"
            f" SELECT partitions[i], offsets[i] FROM hop_run, unnest(array_positions(traces, {x})) i"
            f" WHERE bucket = {x & 255} AND {x} = ANY (traces)")
        return connection.query(union(
            f"SELECT {COLUMNS} FROM {self.leaf(p, o)} WHERE \"offset\" = {o} AND trace_id = '{trace}'" for p, o in found))

    def tail(self, connection, trace):
        return connection.query(f"SELECT partition_id FROM tail WHERE {prefix(trace)} = ANY (traces)")

    def measure(self, how, times, traces, warm, check=True, options=""):
        connection, taken = None, []
        if warm:
            connection = self.server.connect(options)
            if how == self.segments_prepared:
                self.prepare(connection)
            for trace in traces[:6]:
                how(connection, trace)
        for i in range(times):
            trace = traces[i % len(traces)]
            start = time.perf_counter()
            if not warm:
                connection = self.server.connect(options)
            rows = how(connection, trace)
            taken.append((time.perf_counter() - start) * 1000)
            if not warm:
                connection.close()
            assert not check or 9 <= len(rows) <= 11, f"{len(rows)} hops"
        taken.sort()
        return f"p50 {taken[len(taken) // 2]:8.2f} ms   p99 {taken[int(len(taken) * 0.99)]:8.2f} ms"


def main(messages, say=lambda text: print(text, flush=True)):
    server = Server(autovacuum="off")
    admin = server.connect()
    server.script("lookup.sql", messages=messages)
    admin.query("VACUUM ANALYZE")
    lookup = Lookup(server, messages)
    traces = [hashlib.md5(f"trace {i}".encode()).hexdigest() for i in range(messages // 49990)]
    say(f"\nlookup of a trace of 10 hops, {messages} messages, random ids, {len(lookup.leafs)} segments")
    for name, how, warm_times, cold_times in (
            ("b segments, planned", lookup.segments, 30, 30),
            ("b segments, prepared", lookup.segments_prepared, 100, 0),
            ("c hop", lookup.hop, 500, 200),
            ("d blocks", lookup.blocks, 500, 200),
            ("d blocks, read via root", lookup.blocks_root, 500, 200),
            ("h runs, 250k unfolded", lookup.runs, 500, 200)):
        say(f"{name:26} warm {lookup.measure(how, warm_times, traces, True)}")
        if cold_times:
            say(f"{name:26} cold {lookup.measure(how, cold_times, traces, False)}")
    say(f"{'  of it the unfolded':26} warm {lookup.measure(lookup.tail, 100, traces, True, check=False)}")
    admin.query("CREATE EXTENSION pgstattuple")
    for target in (512, 2048, 8192):  # pending pages of 8 kB
        while True:
            pages, tuples = admin.query("SELECT pending_pages, pending_tuples FROM pgstatginindex('hop_block_traces')")[0]
            if int(pages) >= target:
                break
            admin.query("INSERT INTO hop_block SELECT 1, 1, 125, now(), (SELECT array_agg(prefix(gen_random_uuid()))"
                        " FROM generate_series(1, 125) WHERE b > 0) FROM generate_series(1, 100) b")
        name = f"d, pending {int(pages) // 128} MB"
        say(f"{name:26} warm {lookup.measure(lookup.blocks, 300, traces, True)}   ({tuples} blocks pending)")
        say(f"{name:26} cold {lookup.measure(lookup.blocks, 100, traces, False)}")
        forced = lookup.measure(lookup.blocks, 300, traces, True, options="-c enable_seqscan=off")
        say(f"{name + ', no seqscan':26} warm {forced}")
    start = time.perf_counter()
    admin.query("SELECT gin_clean_pending_list('hop_block_traces')")
    say(f"cleaning that list took {time.perf_counter() - start:.1f} s")
    for relation in ("hop", "hop_trace_id_idx", "hop_block", "hop_block_traces", "hop_run", "message_1_0", "message_1_0_trace_id_idx"):
        say(f"size of {relation:26} {admin.one(f'SELECT pg_size_pretty(pg_table_size({chr(39)}{relation}{chr(39)}))')}")
    server.stop()
