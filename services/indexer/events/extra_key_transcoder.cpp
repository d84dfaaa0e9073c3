#include "services/indexer/events/extra_key_transcoder.hpp"

#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

namespace {

event_verdict transcode_value(msgpack_reader& reader, std::vector<std::byte>& bytes, unsigned level);

/// A value without elements; false if the next one is none.
bool transcode_scalar(msgpack_reader& reader, std::vector<std::byte>& bytes) {
  extra_key_writer writer(bytes);
  if (const auto text = reader.text()) {
    writer.text(*text);
  } else if (const auto number = reader.integer()) {
    if (number->negative) {
      writer.integer(static_cast<std::int64_t>(number->bits));
    } else {
      writer.unsigned_integer(number->bits);
    }
  } else if (const auto run = reader.bytes()) {
    writer.byte_text(*run);
  } else if (const auto floating = reader.floating()) {
    writer.number(*floating);
  } else if (const auto boolean = reader.boolean()) {
    writer.boolean(*boolean);
  } else if (reader.nil()) {
    writer.null();
  } else {
    return false;
  }
  return true;
}

event_verdict transcode_array(msgpack_reader& reader, std::uint32_t elements, std::vector<std::byte>& bytes,
                              unsigned level) {
  extra_key_writer(bytes).list(elements);
  for (; elements > 0; --elements) {
    if (const auto fault = transcode_value(reader, bytes, level)) return fault;
  }
  return std::nullopt;
}

event_verdict transcode_map(msgpack_reader& reader, std::uint32_t entries, std::vector<std::byte>& bytes,
                            unsigned level) {
  if (entries > map_order::most_entries) return event_fault::extra_keys;
  extra_key_writer(bytes).map(entries);
  map_order order;
  for (; entries > 0; --entries) {
    const std::size_t start = bytes.size();
    for (int part = 0; part < 2; ++part) {
      if (const auto fault = transcode_value(reader, bytes, level)) return fault;
    }
    if (!order.place(bytes, start)) return event_fault::extra_keys;
  }
  return std::nullopt;
}

/// `level`: that of a list or map in this place.
event_verdict transcode_value(msgpack_reader& reader, std::vector<std::byte>& bytes, unsigned level) {
  if (transcode_scalar(reader, bytes)) return std::nullopt;
  const auto elements = reader.array();
  const auto entries = elements ? std::nullopt : reader.map();
  if (!elements && !entries) return event_fault::extra_keys;
  if (level > extra_key_writer::most_levels) return event_fault::depth;
  return elements ? transcode_array(reader, *elements, bytes, level + 1)
                  : transcode_map(reader, *entries, bytes, level + 1);
}

}  // namespace

event_verdict transcode_list(msgpack_reader& reader, std::vector<std::byte>& bytes) {
  if (reader.nil()) return std::nullopt;
  const auto elements = reader.array();
  if (!elements) return event_fault::extra_keys;
  return *elements == 0 ? std::nullopt : transcode_array(reader, *elements, bytes, 2);
}

}  // namespace cenote::indexer
