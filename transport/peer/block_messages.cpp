#include "transport/peer/block_messages.hpp"

#include <algorithm>
#include <string_view>

#include "core/block_key_io.hpp"
#include "core/byte_io.hpp"
#include "transport/peer/body.hpp"

namespace cenote::peer {

namespace {

constexpr std::size_t longest_spec = 65536;
constexpr std::size_t longest_why = 1024;
constexpr std::size_t token_bytes = 8;
constexpr std::size_t least_write_off_bytes = 4 + 1 + 8;

void put_why(byte_writer& writer, std::string_view why) {
  writer.put_text(why.substr(0, longest_why));
}

/// Of keys that follow: their number and width. False: they cannot all be there.
bool get_count(byte_reader& reader, std::size_t beside, std::uint32_t& count, std::uint8_t& width) {
  count = reader.get<std::uint32_t>();
  width = reader.get<std::uint8_t>();
  return width >= min_key_bytes && width <= max_key_bytes && count <= most_keys &&
         count <= reader.remaining() / (width + beside);
}

full_key get_key(byte_reader& reader, std::uint8_t width) {
  full_key key;
  key.size = width;
  std::ranges::copy(reader.get_run(width), key.bytes.begin());
  return key;
}

/// None: the sender is of an earlier version.
std::optional<std::uint64_t> get_cleared(byte_reader& reader, bool is_good) {
  if (!is_good || reader.remaining() < sizeof(std::uint64_t)) return std::nullopt;
  return reader.get<std::uint64_t>();
}

/// None: the sender has shown none.
std::optional<proof> get_right(byte_reader& reader) {
  if (reader.remaining() < sizeof(proof)) return std::nullopt;
  proof shown{};
  std::ranges::copy(reader.get_run(shown.size()), shown.begin());
  return shown;
}

}  // namespace

std::vector<std::byte> encode(const bind_request& what) {
  byte_writer writer;
  writer.put_raw(what.identity.bytes);
  writer.put(what.cleared);
  writer.put_bytes(what.spec);
  if (what.right) writer.put_raw(*what.right);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const bind_answer& what) {
  byte_writer writer;
  writer.put(what.handle);
  writer.put(what.cleared);
  put_why(writer, what.why);
  if (what.right) writer.put_raw(*what.right);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const unbind_request& what) {
  byte_writer writer;
  writer.put(what.handle);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const locate_request& what) {
  byte_writer writer;
  writer.put(what.handle);
  writer.put(what.group);
  writer.put(static_cast<std::uint32_t>(what.keys.size()));
  writer.put(what.keys.empty() ? std::uint8_t{min_key_bytes} : what.keys.front().size);
  for (const full_key& each : what.keys) writer.put_raw(each.view());
  if (what.cleared) writer.put(*what.cleared);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const locate_answer& what) {
  byte_writer writer;
  writer.put(static_cast<std::uint32_t>(what.held.size()));
  for (std::size_t first = 0; first < what.held.size(); first += 8) {
    unsigned bits = 0;
    for (std::size_t i = first; i < std::min(first + 8, what.held.size()); ++i)
      bits |= (what.held[i] ? 1U : 0U) << (i - first);
    writer.put(static_cast<std::uint8_t>(bits));
  }
  return std::move(writer).take();
}

std::vector<std::byte> encode(const block_request& what) {
  byte_writer writer;
  writer.put(what.handle);
  writer.put(what.group);
  writer.put(static_cast<std::uint32_t>(what.blocks.size()));
  writer.put(what.blocks.empty() ? std::uint8_t{min_key_bytes} : what.blocks.front().second.size);
  for (const auto& [token, key] : what.blocks) {
    writer.put(token);
    writer.put_raw(key.view());
  }
  if (what.cleared) writer.put(*what.cleared);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const block_answers& what) {
  byte_writer writer;
  writer.put(static_cast<std::uint32_t>(what.size()));
  for (const auto& [token, answer] : what) {
    writer.put(token);
    writer.put(static_cast<std::uint8_t>(answer));
  }
  return std::move(writer).take();
}

std::vector<std::byte> encode(const forget_request& what) {
  byte_writer writer;
  writer.put_raw(what.identity.bytes);
  writer.put(what.cleared);
  put_block_keys(writer, what.keys);
  if (!what.spec.empty()) writer.put_bytes(what.spec);
  if (!what.spec.empty() && what.right) writer.put_raw(*what.right);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const forget_answer& what) {
  byte_writer writer;
  writer.put(what.removed);
  put_why(writer, what.why);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const write_off_notice& notice) {
  byte_writer writer;
  writer.put(static_cast<std::uint32_t>(notice.nodes.size()));
  for (const auto& [name, number] : notice.nodes) {
    writer.put_text(name);
    writer.put(number);
  }
  if (!notice.closed.empty()) writer.put(static_cast<std::uint32_t>(notice.closed.size()));
  for (const std::uint64_t number : notice.closed) writer.put(number);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const elsewhere_answer& what) {
  byte_writer writer;
  put_why(writer, what.node);
  writer.put(static_cast<std::uint32_t>(what.tokens.size()));
  for (const std::uint64_t each : what.tokens) writer.put(each);
  return std::move(writer).take();
}

result<bind_request> decode_bind_request(std::span<const std::byte> body) {
  byte_reader reader(body);
  bind_request what;
  what.identity.bytes = reader.get_array<sizeof(instance_identity)>();
  what.cleared = reader.get<std::uint64_t>();
  const auto spec = reader.get_bytes();
  const bool is_good = spec.size() <= longest_spec;
  if (is_good) what.spec.assign(spec.begin(), spec.end());
  what.right = get_right(reader);
  return checked(std::move(what), reader, is_good, "bind");
}

result<bind_answer> decode_bind_answer(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  bind_answer what;
  what.handle = reader.get<std::uint32_t>();
  what.cleared = reader.get<std::uint64_t>();
  what.why = get_text(reader, longest_why, is_good);
  what.right = get_right(reader);
  return checked(std::move(what), reader, is_good, "answer to a bind");
}

result<unbind_request> decode_unbind_request(std::span<const std::byte> body) {
  byte_reader reader(body);
  unbind_request what;
  what.handle = reader.get<std::uint32_t>();
  return checked(what, reader, true, "unbind");
}

result<locate_request> decode_locate_request(std::span<const std::byte> body) {
  byte_reader reader(body);
  locate_request what;
  what.handle = reader.get<std::uint32_t>();
  what.group = reader.get<std::uint32_t>();
  std::uint32_t count = 0;
  std::uint8_t width = 0;
  const bool is_good = get_count(reader, 0, count, width);
  if (is_good) what.keys.reserve(count);
  for (std::uint32_t i = 0; is_good && i < count; ++i) what.keys.push_back(get_key(reader, width));
  what.cleared = get_cleared(reader, is_good);
  return checked(std::move(what), reader, is_good, "locate");
}

result<locate_answer> decode_locate_answer(std::span<const std::byte> body) {
  byte_reader reader(body);
  locate_answer what;
  const auto count = reader.get<std::uint32_t>();
  const bool is_good = count <= most_keys && (count + 7) / 8 <= reader.remaining();
  if (is_good) what.held.resize(count);
  unsigned bits = 0;
  for (std::uint32_t i = 0; is_good && i < count; ++i) {
    if (i % 8 == 0) bits = reader.get<std::uint8_t>();
    what.held[i] = ((bits >> (i % 8)) & 1U) != 0;
  }
  return checked(std::move(what), reader, is_good, "answer to a locate");
}

result<block_request> decode_block_request(std::span<const std::byte> body) {
  byte_reader reader(body);
  block_request what;
  what.handle = reader.get<std::uint32_t>();
  what.group = reader.get<std::uint32_t>();
  std::uint32_t count = 0;
  std::uint8_t width = 0;
  const bool is_good = get_count(reader, token_bytes, count, width);
  if (is_good) what.blocks.reserve(count);
  for (std::uint32_t i = 0; is_good && i < count; ++i) {
    const auto token = reader.get<std::uint64_t>();
    what.blocks.emplace_back(token, get_key(reader, width));
  }
  what.cleared = get_cleared(reader, is_good);
  return checked(std::move(what), reader, is_good, "request for blocks");
}

result<block_answers> decode_block_answers(std::span<const std::byte> body) {
  byte_reader reader(body);
  const auto count = reader.get<std::uint32_t>();
  const bool is_good = count <= reader.remaining() / (token_bytes + 1);
  block_answers what;
  if (is_good) what.reserve(count);
  for (std::uint32_t i = 0; is_good && i < count; ++i) {
    const auto token = reader.get<std::uint64_t>();
    what.emplace_back(token, static_cast<block_answer>(reader.get<std::uint8_t>()));
  }
  return checked(std::move(what), reader, is_good, "answer about blocks");
}

result<elsewhere_answer> decode_elsewhere_answer(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  elsewhere_answer what;
  what.node = get_name(reader, is_good);
  const auto count = reader.get<std::uint32_t>();
  is_good = is_good && count <= most_keys && count <= reader.remaining() / token_bytes;
  if (is_good) what.tokens.reserve(count);
  for (std::uint32_t i = 0; is_good && i < count; ++i) what.tokens.push_back(reader.get<std::uint64_t>());
  return checked(std::move(what), reader, is_good, "answer that names another node");
}

result<forget_request> decode_forget_request(std::span<const std::byte> body) {
  byte_reader reader(body);
  forget_request what;
  what.identity.bytes = reader.get_array<sizeof(instance_identity)>();
  what.cleared = reader.get<std::uint64_t>();
  bool is_good = true;
  what.keys = get_block_keys(reader, most_keys, is_good);
  if (is_good && reader.remaining() > 0) {  // earlier versions send none
    const auto spec = reader.get_bytes();
    is_good = spec.size() <= longest_spec;
    if (is_good) what.spec.assign(spec.begin(), spec.end());
    what.right = get_right(reader);
  }
  return checked(std::move(what), reader, is_good, "forget");
}

result<forget_answer> decode_forget_answer(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  forget_answer what;
  what.removed = reader.get<std::uint64_t>();
  what.why = get_text(reader, longest_why, is_good);
  return checked(std::move(what), reader, is_good, "answer to a forget");
}

result<write_off_notice> decode_write_off_notice(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  write_off_notice notice;
  const auto count = reader.get<std::uint32_t>();
  is_good = count <= most_members && count <= reader.remaining() / least_write_off_bytes;
  for (std::uint32_t i = 0; is_good && i < count; ++i) {
    std::string name = get_name(reader, is_good);
    notice.nodes.emplace_back(std::move(name), reader.get<std::uint64_t>());
  }
  const auto closed = is_good && reader.remaining() >= sizeof(std::uint32_t) ? reader.get<std::uint32_t>() : 0;
  is_good = is_good && closed <= most_members && closed <= reader.remaining() / sizeof(std::uint64_t);
  for (std::uint32_t i = 0; is_good && i < closed; ++i) notice.closed.push_back(reader.get<std::uint64_t>());
  return checked(std::move(notice), reader, is_good, "list of nodes that are written off");
}

}  // namespace cenote::peer
