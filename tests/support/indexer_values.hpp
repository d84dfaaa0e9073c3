// Values of JSON in the canonical form of extra keys; {"bytes": "00ff"} are bytes.
#pragma once

#include "services/indexer/keys/extra_keys.hpp"
#include "tests/support/indexer_cases.hpp"

namespace cenote::indexer {

inline void write_value(const test::json& value, std::vector<std::byte>& bytes) {
  extra_key_writer writer(bytes);
  if (value.is_null()) return writer.null();
  if (value.is_boolean()) return writer.boolean(value.get<bool>());
  if (value.is_number_unsigned()) return writer.unsigned_integer(value.get<std::uint64_t>());
  if (value.is_number_integer()) return writer.integer(value.get<std::int64_t>());
  if (value.is_number_float()) return writer.number(value.get<double>());
  if (value.is_string()) return writer.text(value.get_ref<const std::string&>());
  if (value.is_array()) {
    writer.list(value.size());
    for (const auto& each : value) write_value(each, bytes);
    return;
  }
  if (value.contains("bytes")) return writer.byte_text(test::bytes_of_hex(value["bytes"].get<std::string>()));
  writer.map(value.size());
  map_order order;
  for (const auto& [key, each] : value.items()) {
    const std::size_t start = bytes.size();
    writer.text(key);
    write_value(each, bytes);
    BOOST_REQUIRE(order.place(bytes, start));
  }
}

inline std::vector<std::byte> canonical(const test::json& value) {
  std::vector<std::byte> bytes;
  write_value(value, bytes);
  return bytes;
}

/// Lists of extra keys, one a block; null: none.
inline extra_key_table table_of(const test::json& lists) {
  extra_key_table table;
  for (const auto& list : lists) {
    const auto start = static_cast<std::uint32_t>(table.bytes.size());
    if (!list.is_null()) write_value(list, table.bytes);
    table.blocks.push_back({start, static_cast<std::uint32_t>(table.bytes.size()) - start});
  }
  return table;
}

}  // namespace cenote::indexer
