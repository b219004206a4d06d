"""Heads and lane commits: rates without and with a foreign transaction that holds an old snapshot."""
import re, statistics, time
from lib import Server, tps

HEADS = {  # name: (script, chore, tables whose dead tuples count)
    "(i) update": ("flush_update.sql", None, ["partition_head"]),
    "(ii) insert": ("flush_insert.sql", "thin_head.sql", ["partition", "head"]),
}
LANES = {
    "(i) update by key": ("commit_update.sql", None, ["lane"]),
    "(ii) update by ctid": ("commit_ctid.sql", None, ["lane"]),
    "(iii) insert": ("commit_insert.sql", "thin_lane.sql", ["lane", "lane_commit"]),
}
# Plans made while a table is small must still be good when it is not: heads and lanes are found by index or ctid.
PLANS = "-c enable_hashjoin=off -c enable_mergejoin=off -c enable_seqscan=off -c enable_bitmapscan=off"


def start(server, script, chore, schema, seconds):
    path = f"-c search_path={schema} {PLANS}"
    other = server.bench(chore, seconds, path, clients=1) if chore else None
    return server.bench(script, seconds, path, progress=5, n=0, ctids="{}"), other


def main(setup, variants, rounds, seconds, held, repeats, say=lambda text: print(text, flush=True)):
    server = Server(autovacuum="on", autovacuum_naptime="10s")
    admin = server.connect()
    admin.query("CREATE EXTENSION pgstattuple")
    number = 0
    rates, cpu = {name: [] for name in variants}, {name: [] for name in variants}
    schema = {}
    for name in variants:
        schema[name] = f"s{number}"
        number += 1
        server.script(setup, schema=schema[name])
    for turn in range(rounds + 1):  # the first one warms up
        for name, (script, chore, _) in variants.items():
            used = server.cpu()
            main_run, other = start(server, script, chore, schema[name], seconds)
            rate = tps(main_run)
            if other:
                tps(other)
            if turn:
                rates[name].append(rate)
                cpu[name].append((server.cpu() - used) * 1e6 / (rate * seconds))
    m = statistics.median
    say(f"\n{setup}: without a holder, median of {rounds} rounds of {seconds} s: flushes/s, server CPU us/flush")
    for name in variants:
        say(f"{name:22} {m(rates[name]):7.0f} {m(cpu[name]):7.0f}   {' '.join(f'{r:.0f}' for r in rates[name])}")
    say(f"{setup}: with a holder of {held} s, {repeats} times: flushes/s at the start and at the end, CPU us/flush likewise (medians of 3 x 5 s)")
    for turn in range(repeats):
        for name, (script, chore, tables) in variants.items():
            place = f"s{number}"
            number += 1
            server.script(setup, schema=place)
            holder = server.connect()
            holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
            holder.query("SELECT count(*) FROM pg_class")
            used, began = [server.cpu()], time.time()
            main_run, other = start(server, script, chore, place, held)
            for step in range(1, held // 5):
                time.sleep(max(0, began + step * 5 - time.time()))
                used.append(server.cpu())
            _, err = main_run.communicate()
            if other:
                tps(other)
            steps = [float(x) for x in re.findall(r"progress: [\d.]+ s, ([\d.]+) tps", err)]
            cost = [(used[i + 1] - used[i]) * 1e6 / (5 * steps[i]) for i in range(len(used) - 1)]
            dead = {t: admin.one(f"SELECT dead_tuple_count FROM pgstattuple('{place}.{t}')") for t in tables}
            size = {t: admin.one(f"SELECT pg_size_pretty(pg_total_relation_size('{place}.{t}'))") for t in tables}
            holder.query("ROLLBACK")
            holder.close()
            say(f"{name:22} {m(steps[:3]):7.0f} {m(steps[-3:]):7.0f} {m(cost[:3]):7.0f} {m(cost[-3:]):7.0f}   dead {dead}   size {size}")
            admin.query(f"DROP SCHEMA {place} CASCADE")
    server.stop()
