"""What a trace index costs the publisher: rates relative to no index, and WAL per message."""
import statistics, sys
from lib import Server, tps

BLOCK = """CREATE TABLE hop_block (partition_id bigint, first_offset bigint, messages int, published_at timestamptz,
 traces bigint[]); ALTER TABLE hop_block ALTER traces SET STORAGE PLAIN;"""
GIN = BLOCK + "CREATE INDEX hop_block_traces ON hop_block USING gin (traces) WITH (%s);"
RUN = """CREATE TABLE hop_run (bucket int, run timestamptz, traces bigint[], partitions bigint[], offsets bigint[]);
ALTER TABLE hop_run ALTER traces SET STORAGE EXTERNAL, ALTER partitions SET STORAGE EXTERNAL, ALTER offsets SET STORAGE EXTERNAL;
CREATE INDEX ON hop_run (bucket, run);"""
INTO_RUN = """INSERT INTO hop_run
 SELECT t & 255, now(), array_agg(t), array_agg(partition_id), array_agg(first_offset + i - 1)
 FROM %s, unnest(traces) WITH ORDINALITY u (t, i) GROUP BY 1"""
FOLD = BLOCK + RUN + f"""ALTER TABLE hop_block SET (vacuum_truncate = off);
CREATE FUNCTION fold() RETURNS void LANGUAGE sql SET work_mem = '64MB' AS
'WITH gone AS (DELETE FROM hop_block RETURNING partition_id, first_offset, traces) {INTO_RUN % "gone"}';"""
WINDOWS = f"""CREATE TABLE hop_block (partition_id bigint, first_offset bigint, messages int, published_at timestamptz,
 traces bigint[], parity int) PARTITION BY LIST (parity); ALTER TABLE hop_block ALTER traces SET STORAGE PLAIN;
CREATE TABLE hop_block_0 PARTITION OF hop_block FOR VALUES IN (0); CREATE TABLE hop_block_1 PARTITION OF hop_block FOR VALUES IN (1);
{RUN} CREATE FUNCTION fold_window(w bigint) RETURNS void LANGUAGE plpgsql SET work_mem = '64MB' AS $$ BEGIN
 EXECUTE format('LOCK TABLE hop_block_%s IN SHARE MODE', w);
 EXECUTE format('{INTO_RUN % "hop_block_%s"}', w);
 EXECUTE format('TRUNCATE hop_block_%s', w);
END $$;"""
# name: (script, index of each segment, more SQL, further column, chore)
VARIANTS = {
    "a none": ("publish.sql", "", "", "", None),
    "b segment b-tree uuid": ("publish.sql", "(trace_id)", "", "", None),
    "c hop b-tree": ("publish_hop.sql", "", "CREATE TABLE hop (trace_id uuid, partition_id bigint, \"offset\" bigint);"
                     " CREATE INDEX ON hop (trace_id);", "", None),
    "d blocks, gin fastupdate": ("publish_block.sql", "", GIN % "fastupdate = on, gin_pending_list_limit = 65536",
                                 "", "clean_pending.sql"),
    "d2 blocks, gin": ("publish_block.sql", "", GIN % "fastupdate = off", "", None),
    "e segment hash": ("publish.sql", "USING hash (trace_id)", "", "", None),
    "f segment b-tree int8": ("publish_prefix.sql", "(trace_prefix)", "", ", trace_prefix bigint", None),
    "g blocks, no index": ("publish_block.sql", "", BLOCK, "", None),
    "h blocks, folded": ("publish_block.sql", "", FOLD, "", "fold.sql"),
    "i windows, folded": ("publish_window.sql", "", WINDOWS, "", "fold_window.sql"),
}


def main(rounds, seconds, batches, say=lambda text: print(text, flush=True)):
    server = Server(autovacuum="off")
    admin = server.connect()
    server.script("trace_source.sql", batches=batches)
    for ids in ("random", "v7"):
        rates, cpu, wal, fpi = ({name: [] for name in VARIANTS} for _ in range(4))
        position = {name: 0 for name in VARIANTS}
        schema = {name: f"v_{name.split()[0]}" for name in VARIANTS}
        for name, (_, index, more, extra, _) in VARIANTS.items():
            server.script("message.sql", schema=schema[name], segment_index=index, more=more, extra=extra)
        for turn in range(rounds + 1):  # the first one warms up
            order = list(VARIANTS)[turn % len(VARIANTS):] + list(VARIANTS)[:turn % len(VARIANTS)]
            for name in order:
                script, _, _, _, chore = VARIANTS[name]
                path = f"-c search_path={schema[name]},ids_{ids},public"
                start = admin.one("SELECT pg_current_wal_lsn()")
                used = server.cpu()
                publish = server.bench(script, seconds, path, k=position[name])
                other = server.bench(chore, seconds, path, clients=1) if chore else None
                rate = tps(publish) * 500
                if other:
                    tps(other)
                used = server.cpu() - used
                end = admin.one("SELECT pg_current_wal_lsn()")
                newest = int(admin.one(f'SELECT max("offset") FROM {schema[name]}.message')) // 125
                if turn:
                    records, images = server.wal_stats(start, end)
                    messages = rate * seconds
                    rates[name].append(rate)
                    cpu[name].append(used * 1e6 / messages)
                    wal[name].append(records / messages)
                    fpi[name].append(images / messages)
                position[name] = newest + 1
                if position[name] >= batches:
                    sys.exit(f"{name}: the prepared trace ids ran out, ask for more than {batches} batches")
        m = statistics.median
        def of_none(figures, name):  # the median of the ratios within a round
            return m(x / y for x, y in zip(figures[name], figures["a none"]))

        say(f"\n{ids} trace ids, median of {rounds} rounds of {seconds} s: messages/s, of none, server CPU us/message, of none, WAL bytes/message, FPI bytes/message")
        for name in VARIANTS:
            say(f"{name:26} {m(rates[name]):8.0f} {of_none(rates, name):6.2f} {m(cpu[name]):6.1f} {of_none(cpu, name):6.2f} {m(wal[name]):7.0f} {m(fpi[name]):6.0f}"
                f"   {' '.join(f'{r:.0f}' for r in rates[name])}")
            admin.query(f"DROP SCHEMA {schema[name]} CASCADE")
    server.stop()
