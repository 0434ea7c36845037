from __future__ import annotations

from collections.abc import Iterator

from starlette.testclient import TestClient

from deployments.openai_api import CompletionRequest


def refs(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from refs(value)
    elif isinstance(node, list):
        for item in node:
            yield from refs(item)


def test_every_reference_leads_somewhere(client: TestClient) -> None:
    page = client.get("/openapi.json").json()
    found = set(refs(page))
    assert found
    for ref in found:
        node = page
        for part in ref.removeprefix("#/").split("/"):
            node = node[part]


def test_it_says_what_the_routes_read(client: TestClient) -> None:
    page = client.get("/openapi.json").json()
    bodies = {
        path: route["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for path, route in page["paths"].items()
        if "post" in route
    }
    assert bodies == {
        "/v1/chat/completions": "ChatCompletionRequest",
        "/v1/completions": "CompletionRequest",
        "/tokenize": "TokenizeRequest",
        "/detokenize": "DetokenizeRequest",
    }
    schema = page["components"]["schemas"]["CompletionRequest"]
    assert set(schema["properties"]) == set(CompletionRequest.model_fields)
    assert set(schema["required"]) == {"model", "prompt"}
