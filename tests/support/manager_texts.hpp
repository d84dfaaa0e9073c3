// Texts that are and are not requests of the manager, for all readers of them: they take and refuse the same.
#pragma once

#include <array>
#include <string_view>

namespace cenote::test {

/// Bodies of getCacheLocation that are taken; all mean {instance_id: "i", block_keys: [1, -2]}.
inline constexpr auto good_locate_texts = std::to_array<std::string_view>({
    R"({"instance_id":"i","block_keys":[1,-2]})",
    R"({"instanceId":"i","blockKeys":["1","-2"]})",
    R"( {"instance_id" : "i", "block_keys" : [ 1 , "-2" ] } )",
    "\r\n\t{\"instance_id\":\"i\",\"block_keys\":[1,-2]}\n",
    R"({"instance_id":"\u0069","block_keys":[1.0,-2]})",
    R"({"instance_id":"i","block_keys":[1e0,-20e-1]})",
    R"({"instance_id":"i","block_keys":[1,-2],"unknown":{"deep":[{"x":null}]},"also":1e300})",
    R"({"instance_id":"i","block_keys":[1,-2],"token_ids":null,"block_mask":null,"query_type":null})",
    R"({"instance_id":"i","block_keys":[1,-2],"query_type":0,"sw_size":0})",
    R"({"instance_id":"i","block_keys":[1,-2],"query_type":"QT_UNSPECIFIED","sw_size":"0"})",
});

/// Bodies that are not JSON, or have values of wrong types.
inline constexpr auto malformed_locate_texts = std::to_array<std::string_view>({
    "{",
    "}",
    "{]",
    R"({"instance_id":"i")",
    R"({"instance_id":"i",})",
    R"({"instance_id":"i"} x)",
    R"({"instance_id":"i"}{})",
    R"({'instance_id':'i'})",
    R"({instance_id:"i"})",
    R"({"instance_id":"i", "block_keys":[1,]})",
    R"({"instance_id":"i", "block_keys":[01]})",
    R"({"instance_id":"i", "block_keys":[+1]})",
    R"({"instance_id":"i", "block_keys":[.5]})",
    R"({"instance_id":"i", "block_keys":[NaN]})",
    R"({"instance_id":"i", "block_keys":[1.5]})",
    R"({"instance_id":"i", "block_keys":["x"]})",
    R"({"instance_id":"i", "block_keys":[""]})",
    R"({"instance_id":"i", "block_keys":[true]})",
    R"({"instance_id":"i", "block_keys":[[1]]})",
    R"({"instance_id":"i", "block_keys":[{}]})",
    R"({"instance_id":"i", "block_keys":[9223372036854775808]})",
    R"({"instance_id":"i", "block_keys":["-9223372036854775809"]})",
    R"({"instance_id":"i", "query_type":"QT_NONE"})",
    R"({"instance_id":"i", "query_type":"qt_batch_get"})",
    R"({"instance_id":"i", "query_type":["QT_BATCH_GET"]})",
    R"({"instance_id":"i", "query_type":1.5})",
    R"({"instance_id":"i", "block_keys":1})",
    R"({"instance_id":"i", "sw_size":2147483648})",
    R"({"instance_id":"i", "sw_size":"two"})",
    R"({"instance_id":"i", "block_mask":3})",
    R"({"instance_id":"i", "block_mask":{"offset":[]}})",
    R"({"instance_id":"i", "block_mask":{"bool_masks":{"values":[2]}}})",
    R"({"instance_id":["i"]})",
    R"({"instance_id":{}})",
    "{\"instance_id\":\"\x01\"}",
    "{\"instance_id\":\"\xff\"}",
    "{\"instance_id\":\"i\"}\x01",
    R"({"instance_id":"\q"})",
    "nul",
    "hello",
});

/// Bodies that could be read, but are no objects.
inline constexpr auto objectless_texts =
    std::to_array<std::string_view>({"", " \r\n\t", "null", "[]", "[{}]", "1", "true", "\"text\"", "-0.5"});

}  // namespace cenote::test
