#include "transport/peer/handover_messages.hpp"

#include <algorithm>

#include "core/byte_io.hpp"
#include "transport/peer/body.hpp"

namespace cenote::peer {

namespace {

constexpr unsigned flag_over = 1, flag_refused = 2;  // refused: the reason's code is behind the keys

}  // namespace

std::vector<std::byte> encode(const follow_request& what) {
  byte_writer writer;
  writer.put_raw(what.request.identity.bytes);
  writer.put(what.request.group);
  writer.put(what.position);
  writer.put(what.patience_ms);
  writer.put_text(what.request.text);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const handed_keys& what) {
  byte_writer writer;
  writer.put(what.first);
  const bool is_refused = what.code != error_code::ok;
  writer.put(static_cast<std::uint8_t>((what.is_over || is_refused ? flag_over : 0) | (is_refused ? flag_refused : 0)));
  writer.put(static_cast<std::uint32_t>(what.keys.size()));
  writer.put(what.keys.empty() ? std::uint8_t{min_key_bytes} : what.keys.front().size);
  for (const full_key& each : what.keys) writer.put_raw(each.view());
  if (is_refused) writer.put(static_cast<std::uint16_t>(what.code));
  return std::move(writer).take();
}

/// Names are bytes: an engine's own.
result<follow_request> decode_follow_request(std::span<const std::byte> body) {
  byte_reader reader(body);
  follow_request what;
  what.request.identity.bytes = reader.get_array<sizeof(instance_identity)>();
  what.request.group = reader.get<std::uint32_t>();
  what.position = reader.get<std::uint64_t>();
  what.patience_ms = reader.get<std::uint32_t>();
  const auto name = reader.get_bytes();
  const bool is_good = !name.empty() && name.size() <= handover::longest_request;
  if (is_good) what.request.text.assign(reinterpret_cast<const char*>(name.data()), name.size());
  return checked(std::move(what), reader, is_good, "follow");
}

result<handed_keys> decode_handed_keys(std::span<const std::byte> body) {
  byte_reader reader(body);
  handed_keys what;
  what.first = reader.get<std::uint64_t>();
  const unsigned flags = reader.get<std::uint8_t>();
  what.is_over = (flags & flag_over) != 0;
  const auto count = reader.get<std::uint32_t>();
  const auto width = reader.get<std::uint8_t>();
  const bool is_good = width >= min_key_bytes && width <= max_key_bytes && count <= handed_keys::most &&
                       count <= reader.remaining() / width && what.first <= handover::most_request_keys;
  if (is_good) what.keys.reserve(count);
  for (std::uint32_t i = 0; is_good && i < count; ++i) {
    full_key& key = what.keys.emplace_back();
    key.size = width;
    std::ranges::copy(reader.get_run(width), key.bytes.begin());
  }
  if (is_good && what.is_over && (flags & flag_refused) != 0) {
    const auto code = static_cast<error_code>(reader.get<std::uint16_t>());
    // Others would say something of the follower's own session.
    const bool is_of_the_request = code == error_code::limit_exceeded || code == error_code::unsupported;
    what.code = is_of_the_request ? code : error_code::closed;
  }
  return checked(std::move(what), reader, is_good, "list of keys that were handed over");
}

}  // namespace cenote::peer
