"""What schemathesis cannot know from the document: which names exist, and why a valid request may be refused."""

import re

import schemathesis

NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z")

TRACE = re.compile(r"[0-9a-fA-F]{32}\Z|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")

# How many dead letters seed.rs makes, from 1 on, and as many schedules and parked keys.
DEAD_LETTERS = 70
# The trace of everything that it publishes.
EXISTING_TRACE = "0af7651916cd43dd8448eb211c80319c"

# Refusals that depend on what is stored. 404 and 409 are about nothing else.
STATE = {"partition_out_of_range", "out_of_range", "payload_too_large", "beyond_sent"}
# Refusals by a rule between fields, or about bytes, which a schema cannot count: code, and the field that it names.
RULES = [
    ("malformed", re.compile(r"from$")),  # only one of from, before and at
    ("invalid_message", re.compile(r"(messages\[\d+\]\.)?sequence$")),  # follows on, and needs a producer
    ("malformed", re.compile(r"before_(at|offset)$")),  # not in the future, not beyond the end
    ("invalid_setting", re.compile(r"partitions$")),  # a topic never loses one
    ("invalid_setting", re.compile(r"(settings\.)?(window_ms|window_max_ms|max_age_ms)$")),  # must not contradict each other
    ("invalid_setting", re.compile(r"(settings\.)?on_failure$")),  # only keys can be parked
    ("invalid_setting", re.compile(r"settings\.ordering$")),  # keys are not popped
    ("key_too_large", re.compile(r"(messages\[\d+\]\.)?key$")),
    ("invalid_cause", re.compile(r"(messages\[\d+\]\.)?cause$")),  # names a message, which must exist
    ("invalid_time", re.compile(r"(messages\[\d+\]\.)?(deliver_at|delay_ms)$")),  # given once, neither past nor too far ahead
    ("malformed", re.compile(r"next$")),  # an ack names something
    ("malformed", re.compile(r"until$")),  # not beside delay_ms
    ("malformed", re.compile(r"ack_deadline_ms$")),  # not beside auto_ack
    ("invalid_time", re.compile(r"until$")),  # neither past nor more than a day ahead
    ("headers_too_large", re.compile(r"(messages\[\d+\]\.)?headers$")),
]
# JSON Schema takes 7.0 for an integer. The document says in words that integers are written without a fraction.
FRACTION = "invalid type: floating point"


@schemathesis.check
def refusals_of_valid_requests_have_a_reason(ctx, response, case):
    """Beside the status: a request that the document allows is refused only for one of these reasons."""
    generation = case.meta.generation if case.meta else None
    if generation is None or generation.mode != schemathesis.GenerationMode.POSITIVE:
        return
    if response.status_code not in (400, 410, 413, 422):
        return
    problem = response.json()
    code, field = problem["code"], problem.get("field") or ""
    by_rule = any(code == known and named.match(field) for known, named in RULES)
    if code not in STATE and not by_rule and FRACTION not in problem["detail"]:
        raise AssertionError(f"refused, although the document allows it: {problem}")


@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    """Two of three valid names become ones that exist; otherwise nearly every request would end at an unknown topic.

    Likewise the numbers of partitions, dead letters, schedules and parked keys.
    """
    if not path_parameters:
        return path_parameters
    for name, existing in {"topic": "orders", "group": "billing"}.items():
        value = path_parameters.get(name)
        if isinstance(value, str) and NAME.match(value) and len(value) % 3:
            path_parameters[name] = existing
    trace = path_parameters.get("trace_id")
    if isinstance(trace, str) and TRACE.match(trace) and trace[-1] in "13579bdf":
        path_parameters["trace_id"] = EXISTING_TRACE
    if type(path_parameters.get("partition")) is int and 0 <= path_parameters["partition"] <= 999:
        path_parameters["partition"] %= 4
    if type(path_parameters.get("id")) is int and 0 <= path_parameters["id"] < 2**63 and path_parameters["id"] % 3:
        path_parameters["id"] = path_parameters["id"] % DEAD_LETTERS + 1
    return path_parameters


@schemathesis.hook
def map_query(ctx, query):
    """Half of the requests that name several places to begin at keep one; the others show that it is refused."""
    places = [name for name in ("from", "before", "at") if name in (query or {})]
    if len(places) > 1 and len(str(query)) % 2:
        for name in places[1:]:
            del query[name]
    return query


def in_range(value, low, high):
    """Whether it is an integer between the two, both included."""
    return type(value) is int and low <= value <= high


def keep_orders(operation, parameters):
    """What all operations need is not deleted, paused or purged: the requests that would do it get what exists for that."""
    if operation in ("pause_topic", "purge_topic") and parameters.get("topic") == "orders":
        parameters["topic"] = "idle"
    if operation == "pause_group" and parameters.get("group") == "billing":
        parameters["group"] = "idle"
    if operation == "delete_topic" and parameters.get("topic") == "orders":
        parameters["topic"] = "obsolete"
    if operation == "delete_group" and parameters.get("group") == "billing":
        parameters["group"] = "obsolete"


def keep_topics_small(operation, body):
    """A hundred topics of a thousand partitions would take minutes, and show nothing about HTTP.

    The largest topic has a test of its own (tests/storage/thousand.rs). What is beyond a bound stays as it is. Payloads of
    a few bytes must stay possible, or nothing could be published any more.
    """
    if operation in ("create_topic", "alter_topic"):
        if in_range(body.get("partitions"), 17, 1000):
            body["partitions"] = body["partitions"] % 16 + 1
        if in_range(body.get("payload_bytes_max"), 1, 9999):
            body["payload_bytes_max"] += 10000


def aim_at_partitions(operation, body):
    """Three of four messages for a partition that could exist go to one that does."""
    messages = {"publish_message": [body], "publish_messages": body.get("messages")}.get(operation)
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict) and in_range(message.get("partition"), 0, 999) and message["partition"] % 4:
            message["partition"] %= 2


def aim_at_pops(operation, parameters, body):
    """Groups that `seed.rs` has popped from are acknowledged, refused and extended; a wait is short.

    A third of the pops keep the settings that they ask for.
    """
    if operation in ("ack_pop", "nack_pop", "extend_pop"):
        if parameters.get("group") == "billing":
            parameters["group"] = {"ack_pop": "acked", "nack_pop": "nacked", "extend_pop": "extended"}[operation]
        for name, value in {"partition": 0, "epoch": 1}.items():
            if in_range(body.get(name), 0, 999):
                body[name] = value
        for name in ("next", "offset"):
            if in_range(body.get(name), 0, 2**63 - 1) and body[name] % 3:
                body[name] %= 50
    if operation == "pop" and in_range(body.get("wait_ms"), 1, 20000):
        body["wait_ms"] = body["wait_ms"] % 5
    if operation == "pop" and isinstance(body.get("settings"), dict) and len(str(body["settings"])) % 3:
        del body["settings"]  # most groups exist, and have others


@schemathesis.hook
def before_call(ctx, case, kwargs):
    operation = case.operation.definition.raw["operationId"]
    keep_orders(operation, case.path_parameters or {})
    if isinstance(case.body, dict):
        aim_at_pops(operation, case.path_parameters or {}, case.body)
    if isinstance(case.body, dict):
        keep_topics_small(operation, case.body)
        aim_at_partitions(operation, case.body)
