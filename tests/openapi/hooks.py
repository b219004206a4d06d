"""What schemathesis cannot know from the document: which names exist, and why a valid request may be refused."""

import re

import schemathesis

NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z")

# Refusals that depend on what is stored. 404 and 409 are about nothing else.
STATE = {"partition_out_of_range", "out_of_range", "payload_too_large"}
# Refusals by a rule between fields, or about bytes, which a schema cannot count: code, and the field that it names.
RULES = [
    ("malformed", re.compile(r"from$")),  # only one of from, before and at
    ("invalid_message", re.compile(r"(messages\[\d+\]\.)?sequence$")),  # follows on, and needs a producer
    ("invalid_setting", re.compile(r"partitions$")),  # a topic never loses one
    ("key_too_large", re.compile(r"(messages\[\d+\]\.)?key$")),
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
    """Two of three valid names become ones that exist; otherwise nearly every request would end at an unknown topic."""
    if not path_parameters:
        return path_parameters
    for name, existing in {"topic": "orders", "group": "billing"}.items():
        value = path_parameters.get(name)
        if isinstance(value, str) and NAME.match(value) and len(value) % 3:
            path_parameters[name] = existing
    if type(path_parameters.get("partition")) is int and 0 <= path_parameters["partition"] <= 999:
        path_parameters["partition"] %= 4
    return path_parameters


@schemathesis.hook
def map_query(ctx, query):
    """Half of the requests that name several places to begin at keep one; the others show that it is refused."""
    places = [name for name in ("from", "before", "at") if name in (query or {})]
    if len(places) > 1 and len(str(query)) % 2:
        for name in places[1:]:
            del query[name]
    return query


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """What all operations need is not deleted: the requests that would do it delete what exists for that."""
    operation = case.operation.definition.raw["operationId"]
    parameters = case.path_parameters or {}
    if operation == "delete_topic" and parameters.get("topic") == "orders":
        parameters["topic"] = "obsolete"
    if operation == "delete_group" and parameters.get("group") == "billing":
        parameters["group"] = "obsolete"
