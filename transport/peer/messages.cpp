#include "transport/peer/messages.hpp"

#include <utility>

#include "core/byte_io.hpp"
#include "core/text.hpp"
#include "transport/peer/body.hpp"

namespace cenote::peer {

namespace {

constexpr std::size_t longest_host = 255;
constexpr std::size_t longest_version = 32;
constexpr std::size_t least_viewed_bytes = 4 + 1 + 4 + 1 + 2 + 8;  // a member with the shortest texts

void put_endpoint(byte_writer& writer, const endpoint& what) {
  writer.put_text(what.host);
  writer.put(what.port);
}

endpoint get_endpoint(byte_reader& reader, bool& is_good) {
  endpoint what;
  what.host = get_text(reader, longest_host, is_good);
  what.port = reader.get<std::uint16_t>();
  is_good = is_good && !what.host.empty();
  return what;
}

greeting get_greeting(byte_reader& reader, bool& is_good) {
  greeting who;
  who.cluster = get_name(reader, is_good);
  who.name = get_name(reader, is_good);
  who.version = get_text(reader, longest_version, is_good);
  who.where = get_endpoint(reader, is_good);
  who.blocks_at = get_endpoint(reader, is_good);
  who.born.number = reader.get<std::uint64_t>();
  who.once = reader.get_array<sizeof(nonce)>();
  who.features = reader.get<std::uint64_t>();
  who.weight = reader.get<std::uint64_t>();
  who.has_secret = reader.get<std::uint8_t>() != 0;
  return who;
}

}  // namespace

std::vector<std::byte> encode(const greeting& what) {
  byte_writer writer;
  writer.put_text(what.cluster);
  writer.put_text(what.name);
  writer.put_text(what.version);
  put_endpoint(writer, what.where);
  put_endpoint(writer, what.blocks_at);
  writer.put(what.born.number);
  writer.put_raw(what.once);
  writer.put(what.features);
  writer.put(what.weight);
  writer.put(static_cast<std::uint8_t>(what.has_secret));
  return std::move(writer).take();
}

std::vector<std::byte> encode_challenge(const proof& shown, std::span<const std::byte> greeting_bytes) {
  byte_writer writer;
  writer.put_raw(shown);
  writer.put_raw(greeting_bytes);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const welcome& what) {
  return {what.shown.begin(), what.shown.end()};
}

std::vector<std::byte> encode(const refuse& what) {
  byte_writer writer;
  writer.put(static_cast<std::uint16_t>(what.why));
  writer.put_text(std::string_view(what.text).substr(0, longest_reason));
  return std::move(writer).take();
}

std::vector<std::byte> encode(const beat& what) {
  byte_writer writer;
  writer.put(what.view_hash);
  writer.put(what.sent_ns);
  writer.put(what.echo_ns);
  writer.put(what.held_ns);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const view& what) {
  byte_writer writer;
  writer.put(static_cast<std::uint32_t>(what.live.size()));
  for (const viewed& each : what.live) {
    writer.put_text(each.name);
    put_endpoint(writer, each.where);
    writer.put(each.born.number);
  }
  return std::move(writer).take();
}

std::vector<std::byte> encode(const weigh& what) {
  byte_writer writer;
  writer.put(what.weight);
  return std::move(writer).take();
}

result<hello> decode_hello(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  hello what{get_greeting(reader, is_good)};
  return checked(std::move(what), reader, is_good, "hello");
}

result<challenge> decode_challenge(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  challenge what;
  what.shown = reader.get_array<sizeof(proof)>();
  what.who = get_greeting(reader, is_good);
  return checked(std::move(what), reader, is_good, "challenge");
}

result<welcome> decode_welcome(std::span<const std::byte> body) {
  byte_reader reader(body);
  const welcome what{reader.get_array<sizeof(proof)>()};
  return checked(what, reader, true, "welcome");
}

result<refuse> decode_refuse(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  refuse what;
  what.why = static_cast<refusal>(reader.get<std::uint16_t>());
  what.text = get_text(reader, longest_reason, is_good);
  return checked(std::move(what), reader, is_good, "refusal");
}

result<beat> decode_beat(std::span<const std::byte> body) {
  byte_reader reader(body);
  beat what;
  what.view_hash = reader.get<std::uint64_t>();
  what.sent_ns = reader.get<std::int64_t>();
  what.echo_ns = reader.get<std::int64_t>();
  what.held_ns = reader.get<std::int64_t>();
  return checked(what, reader, true, "beat");
}

result<weigh> decode_weigh(std::span<const std::byte> body) {
  byte_reader reader(body);
  const weigh what{reader.get<std::uint64_t>()};
  return checked(what, reader, true, "weight");
}

result<view> decode_view(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  const auto count = reader.get<std::uint32_t>();
  if (count > most_members || count > reader.remaining() / least_viewed_bytes)
    return fail(error_code::malformed, "a view that names " + std::to_string(count) + " nodes");
  view what;
  what.live.reserve(count);
  for (std::uint32_t i = 0; i < count && reader.ok() && is_good; ++i) {
    viewed& each = what.live.emplace_back();
    each.name = get_name(reader, is_good);
    each.where = get_endpoint(reader, is_good);
    each.born.number = reader.get<std::uint64_t>();
  }
  return checked(std::move(what), reader, is_good, "view");
}

}  // namespace cenote::peer
