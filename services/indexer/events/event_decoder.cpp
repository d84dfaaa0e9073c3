#include "services/indexer/events/event_decoder.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>

#include "services/indexer/events/event_adapter.hpp"

namespace cenote::indexer {

namespace {

constexpr unsigned levels_below_event = msgpack_reader::most_levels - 3;  // batch, list of events, event

constexpr std::array<std::pair<std::string_view, event_kind>, 3> tags{{{"BlockStored", event_kind::stored},
                                                                       {"BlockRemoved", event_kind::removed},
                                                                       {"AllBlocksCleared", event_kind::cleared}}};

/// The fields of maps, of all engines.
constexpr std::array<std::pair<std::string_view, event_field>, 13> fields{
    {{"block_hashes", event_field::block_hashes},
     {"parent_block_hash", event_field::parent},
     {"token_ids", event_field::tokens},
     {"block_size", event_field::block_size},
     {"lora_id", event_field::lora_id},
     {"medium", event_field::medium},
     {"lora_name", event_field::lora_name},
     {"extra_keys", event_field::extra_keys},
     {"group_idx", event_field::group},
     {"kv_cache_spec_kind", event_field::attention},
     {"kv_cache_spec_sliding_window", event_field::window},
     {"cache_salt", event_field::cache_salt},
     {"metadata", event_field::metadata}}};

/// The value of a name in one of these tables.
template <class Value, std::size_t Size>
std::optional<Value> value_named(const std::array<std::pair<std::string_view, Value>, Size>& table,
                                 std::string_view name) noexcept {
  for (const auto& [each, value] : table) {
    if (each == name) return value;
  }
  return std::nullopt;
}

constexpr char as_lower(char letter) noexcept {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

/// The fields that events of a kind have a use for.
bool is_used(event_kind kind, event_field field) noexcept {
  const bool is_place = field == event_field::medium || field == event_field::group;
  switch (kind) {
    case event_kind::stored: return true;
    case event_kind::removed: return is_place || field == event_field::block_hashes;
    case event_kind::cleared: break;
  }
  return is_place;
}

struct hash_value {
  std::uint64_t last = 0;   ///< the last eight bytes
  std::uint64_t first = 0;  ///< the first eight
};

std::uint64_t number_of(std::span<const std::byte> bytes) noexcept {
  std::uint64_t number = 0;
  for (const std::byte each : bytes) number = number << 8 | static_cast<std::uint8_t>(each);
  return number;
}

std::optional<hash_value> read_hash(msgpack_reader& reader) noexcept {
  if (const auto number = reader.integer()) return hash_value{number->bits, number->bits};
  const auto bytes = reader.bytes();
  if (!bytes || bytes->empty()) return std::nullopt;
  const std::size_t size = std::min<std::size_t>(bytes->size(), 8);
  return hash_value{number_of(bytes->last(size)), number_of(bytes->first(size))};
}

/// A text of bounded length; nil is an empty one.
std::optional<std::string_view> read_name(msgpack_reader& reader) noexcept {
  if (reader.nil()) return std::string_view();
  const auto text = reader.text();
  return text && text->size() <= batch_limits::name_bytes ? text : std::nullopt;
}

/// A non-negative number of tokens; nil is 0.
std::optional<std::uint32_t> read_token_count(msgpack_reader& reader) noexcept {
  if (reader.nil()) return 0U;
  const auto number = reader.integer();
  const auto count = number ? number->held_by<std::int32_t>() : std::nullopt;
  return count && *count >= 0 ? std::optional(static_cast<std::uint32_t>(*count)) : std::nullopt;
}

array_range append_text(event_batch& batch, std::string_view text) {
  const array_range range{static_cast<std::uint32_t>(batch.text.size()), static_cast<std::uint32_t>(text.size())};
  batch.text.insert(batch.text.end(), text.begin(), text.end());
  return range;
}

}  // namespace

event_verdict event_decoder::decode() {
  event_verdict fault = event_fault::form;
  if (const auto entries = reader_.map()) {
    fault = decode_map(*entries);
  } else if (const auto elements = reader_.array()) {
    fault = decode_array(*elements);
  }
  return fault ? fault : finish();
}

event_verdict event_decoder::decode_tag() {
  const auto tag = reader_.text();
  if (!tag) return event_fault::tag;
  kind_ = value_named(tags, *tag);
  if (!kind_) return event_fault::unknown_tag;
  event_.kind = *kind_;
  return std::nullopt;
}

event_verdict event_decoder::decode_array(std::uint32_t elements) {
  if (elements == 0) return event_fault::form;
  if (const auto fault = decode_tag()) return fault;
  std::span<const event_field> order;
  std::size_t least = 0;
  if (*kind_ == event_kind::stored) {
    order = format_.stored_order;
    least = 4;  // hashes, parent, tokens and block size
  } else if (*kind_ == event_kind::removed) {
    order = format_.removed_order;
    least = 1;
  }
  const std::size_t count = elements - 1;
  if (count < least) return event_fault::form;
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto fault = decode_field(i < order.size() ? order[i] : event_field::skipped)) return fault;
  }
  return std::nullopt;
}

event_verdict event_decoder::decode_map(std::uint32_t entries) {
  for (; entries > 0; --entries) {
    event_field field = event_field::skipped;
    const auto name = reader_.text();
    if (!name) {  // a key of another type
      if (const auto fault = pass()) return fault;
    } else if (*name == "type") {
      if (const auto fault = decode_tag()) return fault;
      continue;
    } else {
      field = value_named(fields, *name).value_or(event_field::skipped);
      if (kind_ && !is_used(*kind_, field)) field = event_field::skipped;
    }
    if (const auto fault = decode_field(field)) return fault;
  }
  return kind_ ? std::nullopt : event_verdict(event_fault::tag);
}

event_verdict event_decoder::decode_field(event_field field) {
  switch (field) {
    case event_field::block_hashes: return decode_hashes();
    case event_field::parent: return decode_parent();
    case event_field::tokens: return decode_tokens();
    case event_field::block_size: return decode_token_count(event_.block_tokens, event_fault::block_size);
    case event_field::lora_id: return decode_lora_id();
    case event_field::medium: return decode_medium();
    case event_field::lora_name: return decode_lora_name();
    case event_field::extra_keys: return decode_extra_keys();
    case event_field::group: return decode_group();
    case event_field::attention: return decode_attention();
    case event_field::window: return decode_token_count(event_.window_tokens, event_fault::group);
    case event_field::cache_salt: return decode_salt();
    case event_field::metadata: {
      const auto entries = reader_.map();
      return entries ? decode_metadata(*entries) : pass();
    }
    case event_field::skipped: break;
  }
  return pass();
}

event_verdict event_decoder::pass() noexcept {
  return reader_.skip(levels_below_event) ? std::nullopt : event_verdict(event_fault::depth);
}

bool event_decoder::fits(std::size_t present, std::size_t size, std::size_t limit) noexcept {
  if (size <= limit - std::min(present, limit)) return true;
  is_over_limit_ = true;
  return false;
}

event_verdict event_decoder::decode_hashes() {
  const auto count = reader_.array();
  if (!count || !fits(batch_.hashes.size(), *count, batch_limits::blocks)) return event_fault::hashes;
  const std::size_t first = batch_.hashes.size();
  for (std::uint32_t i = 0; i < *count; ++i) {
    const auto hash = read_hash(reader_);
    if (!hash) return event_fault::hashes;
    batch_.hashes.push_back(hash->last);
    if (format_.has_leading_hashes) batch_.leading_hashes.push_back(hash->first);
  }
  event_.hashes = {static_cast<std::uint32_t>(first), *count};
  has_hashes_ = true;
  return std::nullopt;
}

event_verdict event_decoder::decode_parent() {
  event_.parent.reset();
  if (reader_.nil()) return std::nullopt;
  const auto hash = read_hash(reader_);
  if (!hash) return event_fault::parent;
  event_.parent = hash->last;
  return std::nullopt;
}

event_verdict event_decoder::decode_tokens() {
  event_.tokens = {};
  if (reader_.nil()) return std::nullopt;
  const auto count = reader_.array();
  if (!count || !fits(batch_.tokens.size(), *count, batch_limits::tokens)) return event_fault::tokens;
  const std::size_t first = batch_.tokens.size();
  batch_.tokens.resize(first + *count);
  if (!reader_.words(std::span(batch_.tokens).subspan(first))) return event_fault::tokens;
  event_.tokens = {static_cast<std::uint32_t>(first), *count};
  return std::nullopt;
}

event_verdict event_decoder::decode_token_count(std::uint32_t& target, event_fault fault) noexcept {
  const auto count = read_token_count(reader_);
  if (!count) return fault;
  target = *count;
  return std::nullopt;
}

event_verdict event_decoder::decode_medium() {
  const auto name = read_name(reader_);
  if (!name) return event_fault::medium;
  event_.is_medium_named = !name->empty();
  event_.medium = block_medium::gpu;
  event_.medium_text = {};
  if (name->empty()) return std::nullopt;
  const array_range kept = append_text(batch_, *name);
  const std::span<char> text = std::span(batch_.text).subspan(kept.first);
  std::ranges::transform(text, text.begin(), as_lower);
  const auto known = medium_named({text.data(), text.size()});
  event_.medium = known.value_or(block_medium::other);
  if (known) {
    batch_.text.resize(kept.first);
  } else {
    event_.medium_text = kept;
  }
  return std::nullopt;
}

event_verdict event_decoder::decode_lora_name() {
  if (const auto entries = reader_.map()) return decode_metadata(*entries);  // SGLang's array, read in vLLM's order
  const auto name = read_name(reader_);
  if (!name) return event_fault::lora;
  event_.lora_name = append_text(batch_, *name);
  return std::nullopt;
}

event_verdict event_decoder::decode_lora_id() {
  const auto number = reader_.integer();
  if (!number) return pass();
  lora_id_ = number->negative ? 0 : number->bits;
  return std::nullopt;
}

event_verdict event_decoder::decode_extra_keys() {
  event_.extra_keys = {};
  if (reader_.nil()) return std::nullopt;
  extra_key_table& table = batch_.extra_keys;
  const auto count = reader_.array();
  if (!count || !fits(table.blocks.size(), *count, batch_limits::blocks)) return event_fault::extra_keys;
  const std::size_t first = table.blocks.size();
  for (std::uint32_t i = 0; i < *count; ++i) {
    const std::size_t start = table.bytes.size();
    if (const auto fault = transcode_list(reader_, table.bytes)) return fault;
    table.blocks.push_back({static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(table.bytes.size() - start)});
  }
  event_.extra_keys = {static_cast<std::uint32_t>(first), *count};
  return std::nullopt;
}

event_verdict event_decoder::decode_group() {
  event_.group.reset();
  if (reader_.nil()) return std::nullopt;
  const auto number = reader_.integer();
  if (number) event_.group = number->held_by<std::int32_t>();
  return event_.group ? std::nullopt : event_verdict(event_fault::group);
}

event_verdict event_decoder::decode_attention() {
  const auto name = read_name(reader_);
  if (!name) return event_fault::group;
  event_.attention = attention_kind::unstated;
  if (!name->empty()) event_.attention = enum_named<attention_kind>(*name).value_or(attention_kind::other);
  return std::nullopt;
}

event_verdict event_decoder::decode_salt() {
  const auto salt = read_name(reader_);
  if (!salt) return event_fault::extra_keys;
  cache_salt_ = *salt;
  return std::nullopt;
}

event_verdict event_decoder::decode_metadata(std::uint32_t entries) {
  for (; entries > 0; --entries) {
    const auto name = reader_.text();
    if (!name) {
      if (const auto fault = pass()) return fault;
    }
    if (const auto fault = name == "cache_salt" ? decode_salt() : pass()) return fault;
  }
  return std::nullopt;
}

event_verdict event_decoder::finish() {
  if (event_.kind == event_kind::cleared) return std::nullopt;
  if (!has_hashes_) return event_fault::hashes;
  if (event_.kind == event_kind::removed) return std::nullopt;
  if (!event_.tokens.empty() && event_.block_tokens == 0) return event_fault::block_size;
  if (const auto fault = finish_extra_keys()) return fault;
  if (!cache_salt_.empty() && event_.extra_keys.empty()) keep_salt();
  if (lora_id_ > 0 && event_.lora_name.empty()) {  // an adapter without a name is not the base model
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), lora_id_).ptr;
    event_.lora_name = append_text(batch_, "lora_id:");
    event_.lora_name.size += append_text(batch_, {digits.data(), static_cast<std::size_t>(end - digits.data())}).size;
  }
  return std::nullopt;
}

event_verdict event_decoder::finish_extra_keys() {
  const auto lists = batch_.extra_keys_of(event_).blocks;
  const bool has_some = !std::ranges::all_of(lists, &array_range::empty);
  if (has_some) return lists.size() == event_.hashes.size ? std::nullopt : event_verdict(event_fault::extra_keys);
  event_.extra_keys = {};
  return std::nullopt;
}

/// As a question's `cache_salt`: in the list of the prompt's first block, whose key all others go on from.
void event_decoder::keep_salt() {
  extra_key_table& table = batch_.extra_keys;
  if (event_.parent || event_.hashes.empty() || !fits(table.blocks.size(), event_.hashes.size, batch_limits::blocks))
    return;
  const auto first = static_cast<std::uint32_t>(table.blocks.size());
  append_text_list(table, cache_salt_);
  table.blocks.resize(first + event_.hashes.size);
  event_.extra_keys = {first, event_.hashes.size};
}

}  // namespace cenote::indexer
