#include "transport/peer/agreement_messages.hpp"

#include <string_view>
#include <utility>

#include "core/byte_io.hpp"
#include "core/instance_spec.hpp"
#include "core/text.hpp"
#include "transport/peer/body.hpp"

namespace cenote::peer {

namespace {

enum class saying_kind : std::uint8_t { decided = 1, lost = 2, refused = 3 };

constexpr std::size_t rank_bytes = 12;
constexpr std::size_t proposal_bytes = 24;
constexpr std::size_t decision_bytes = 16;
constexpr std::size_t question_bytes = 8;
constexpr std::size_t least_node_bytes = 16;  // of a node without name and ranks

void put_epoch(byte_writer& writer, const group_epoch& epoch) {
  writer.put(epoch.coordinator.number);
  writer.put(epoch.number);
}

group_epoch get_epoch(byte_reader& reader) {
  group_epoch epoch;
  epoch.coordinator.number = reader.get<std::uint64_t>();
  epoch.number = reader.get<std::uint64_t>();
  return epoch;
}

void put_reason(byte_writer& writer, std::string_view why) {
  writer.put_text(cut_text(why, longest_group_reason));
}

std::string get_reason(byte_reader& reader, bool& is_good) {
  return get_text(reader, longest_group_reason, is_good);
}

void put_group(byte_writer& writer, const group_name& group) {
  writer.put_text(group.text);
  writer.put(group.owner.uid);
  writer.put_text(group.owner.group);
}

/// A name is compared byte by byte: one that cannot be shown as it is is none.
group_name get_group(byte_reader& reader, bool& is_good) {
  group_name name;
  name.text = reader.get_text();
  name.owner.uid = reader.get<std::uint32_t>();
  name.owner.group = reader.get_text();
  if (!name.owner.group.empty() && !check_name("an instance group", name.owner.group, max_name_bytes)) is_good = false;
  if (name.text.empty() || !check_name("a group's name", name.text, longest_group_name)) is_good = false;
  return is_good ? name : group_name();
}

void put_ranks(byte_writer& writer, const std::vector<joined_rank>& ranks) {
  writer.put(static_cast<std::uint32_t>(ranks.size()));
  for (const joined_rank& each : ranks) {
    writer.put(each.rank);
    writer.put(each.life);
  }
}

/// A count of what follows, each of which takes `bytes`. What cannot be there spoils the message.
std::uint32_t count_of(byte_reader& reader, std::size_t most, std::size_t bytes, bool& is_good) {
  const auto count = reader.get<std::uint32_t>();
  if (count > most || count > reader.remaining() / bytes) is_good = false;
  return is_good ? count : 0;
}

std::vector<joined_rank> get_ranks(byte_reader& reader, bool& is_good) {
  std::vector<joined_rank> ranks(count_of(reader, most_group_ranks, rank_bytes, is_good));
  for (joined_rank& each : ranks) {
    each.rank = reader.get<std::uint32_t>();
    each.life = reader.get<std::uint64_t>();
  }
  return ranks;
}

void put_questions(byte_writer& writer, const std::vector<std::uint64_t>& questions) {
  writer.put(static_cast<std::uint32_t>(questions.size()));
  for (const std::uint64_t each : questions) writer.put(each);
}

std::vector<std::uint64_t> get_questions(byte_reader& reader, std::size_t most, bool& is_good) {
  std::vector<std::uint64_t> questions(count_of(reader, most, question_bytes, is_good));
  for (std::uint64_t& each : questions) each = reader.get<std::uint64_t>();
  return questions;
}

decided_lengths get_decided(byte_reader& reader, bool& is_good) {
  decided_lengths what;
  what.first = reader.get<std::uint64_t>();
  what.decisions.resize(count_of(reader, most_frame_questions, decision_bytes, is_good));
  for (decision& each : what.decisions) {
    each.question = reader.get<std::uint64_t>();
    each.length = reader.get<std::uint64_t>();
  }
  what.too_old = get_questions(reader, most_frame_questions, is_good);
  return what;
}

void put_saying(byte_writer& writer, const group_name& group, const group_epoch& epoch, saying_kind kind) {
  put_group(writer, group);
  put_epoch(writer, epoch);
  writer.put(static_cast<std::uint8_t>(kind));
}

}  // namespace

std::vector<std::byte> encode(const seek_group& what) {
  byte_writer writer;
  put_group(writer, what.group);
  writer.put(static_cast<std::uint8_t>(what.has_first ? 1 : 0));
  return std::move(writer).take();
}

std::vector<std::byte> encode(const join_group& what) {
  byte_writer writer;
  put_group(writer, what.group);
  writer.put_raw(what.shared.bytes);
  writer.put(what.size);
  writer.put(what.turn);
  put_ranks(writer, what.ranks);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const group_formed& what) {
  byte_writer writer;
  put_group(writer, what.group);
  put_epoch(writer, what.epoch);
  writer.put(static_cast<std::uint32_t>(what.nodes.size()));
  for (const node_ranks& each : what.nodes) {
    writer.put_text(each.node);
    writer.put(each.born.number);
    put_ranks(writer, each.ranks);
  }
  return std::move(writer).take();
}

std::vector<std::byte> encode(const propose_lengths& what) {
  byte_writer writer;
  put_group(writer, what.group);
  put_epoch(writer, what.epoch);
  writer.put(what.heard_up_to);
  writer.put(static_cast<std::uint8_t>(what.is_over ? 1 : 0));
  put_reason(writer, what.why);
  writer.put(static_cast<std::uint32_t>(what.proposals.size()));
  for (const proposal& each : what.proposals) {
    writer.put(each.question);
    writer.put(each.length);
    writer.put(each.timeout_ns);
  }
  return std::move(writer).take();
}

std::vector<std::byte> encode(const decided_lengths& what) {
  byte_writer writer;
  put_saying(writer, what.group, what.epoch, saying_kind::decided);
  writer.put(what.first);
  writer.put(static_cast<std::uint32_t>(what.decisions.size()));
  for (const decision& each : what.decisions) {
    writer.put(each.question);
    writer.put(each.length);
  }
  put_questions(writer, what.too_old);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const lost_epoch& what) {
  byte_writer writer;
  put_saying(writer, what.group, what.epoch, saying_kind::lost);
  writer.put(static_cast<std::uint8_t>(what.wants_answer ? 1 : 0));
  put_reason(writer, what.why);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const refused_ranks& what) {
  byte_writer writer;
  put_saying(writer, what.group, {}, saying_kind::refused);
  writer.put(static_cast<std::uint16_t>(what.code));
  put_questions(writer, what.lives);
  put_reason(writer, what.why);
  return std::move(writer).take();
}

std::vector<std::byte> encode(const group_here& what) {
  byte_writer writer;
  put_group(writer, what.group);
  writer.put(static_cast<std::uint8_t>(what.is_formed ? 1 : 0));
  return std::move(writer).take();
}

result<seek_group> decode_seek_group(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  seek_group what;
  what.group = get_group(reader, is_good);
  what.has_first = reader.get<std::uint8_t>() != 0;
  return checked(std::move(what), reader, is_good, "search for a group");
}

result<join_group> decode_join_group(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  join_group what;
  what.group = get_group(reader, is_good);
  what.shared.bytes = reader.get_array<sizeof(instance_identity)>();
  what.size = reader.get<std::uint32_t>();
  what.turn = reader.get<std::uint64_t>();
  what.ranks = get_ranks(reader, is_good);
  return checked(std::move(what), reader, is_good, "join of a group");
}

result<group_formed> decode_group_formed(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  group_formed what;
  what.group = get_group(reader, is_good);
  what.epoch = get_epoch(reader);
  const auto count = count_of(reader, most_group_ranks, least_node_bytes, is_good);
  what.nodes.reserve(count);
  for (std::uint32_t i = 0; is_good && i < count; ++i) {
    node_ranks& each = what.nodes.emplace_back();
    each.node = get_name(reader, is_good);
    each.born.number = reader.get<std::uint64_t>();
    each.ranks = get_ranks(reader, is_good);
  }
  return checked(std::move(what), reader, is_good, "formation of a group");
}

result<propose_lengths> decode_propose_lengths(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  propose_lengths what;
  what.group = get_group(reader, is_good);
  what.epoch = get_epoch(reader);
  what.heard_up_to = reader.get<std::uint64_t>();
  what.is_over = reader.get<std::uint8_t>() != 0;
  what.why = get_reason(reader, is_good);
  what.proposals.resize(count_of(reader, most_frame_questions, proposal_bytes, is_good));
  for (proposal& each : what.proposals) {
    each.question = reader.get<std::uint64_t>();
    each.length = reader.get<std::uint64_t>();
    each.timeout_ns = reader.get<std::uint64_t>();
  }
  return checked(std::move(what), reader, is_good, "proposal of lengths");
}

result<group_saying> decode_group_saying(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  const group_name group = get_group(reader, is_good);
  const group_epoch epoch = get_epoch(reader);
  const auto kind = reader.get<std::uint8_t>();
  group_saying what;
  if (kind == static_cast<std::uint8_t>(saying_kind::decided)) {
    auto decided = get_decided(reader, is_good);
    decided.group = group;
    decided.epoch = epoch;
    what = std::move(decided);
  } else if (kind == static_cast<std::uint8_t>(saying_kind::lost)) {
    const bool wants_answer = reader.get<std::uint8_t>() != 0;
    what = lost_epoch{group, epoch, wants_answer, get_reason(reader, is_good)};
  } else if (kind == static_cast<std::uint8_t>(saying_kind::refused)) {
    refused_ranks refused{.group = group};
    refused.code = static_cast<error_code>(reader.get<std::uint16_t>());
    if (refused.code == error_code::ok) is_good = false;
    refused.lives = get_questions(reader, most_group_ranks, is_good);
    refused.why = get_reason(reader, is_good);
    what = std::move(refused);
  }
  return checked(std::move(what), reader, is_good, "word of a group's coordinator");
}

result<group_here> decode_group_here(std::span<const std::byte> body) {
  byte_reader reader(body);
  bool is_good = true;
  group_here what;
  what.group = get_group(reader, is_good);
  what.is_formed = reader.get<std::uint8_t>() != 0;
  return checked(std::move(what), reader, is_good, "answer to a search for a group");
}

}  // namespace cenote::peer
