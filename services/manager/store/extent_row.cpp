#include "services/manager/store/extent_row.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "core/byte_io.hpp"
#include "services/manager/store/row_seal.hpp"

namespace cenote::manager {

namespace {

constexpr std::uint16_t grant_version = 1;
constexpr std::uint16_t states_version = 1;
constexpr std::uint16_t summed_version = 2;  ///< as states_version, with checksums behind
constexpr std::uint16_t finish_version = 3;
constexpr std::size_t row_name_bytes = 1 + 2 * sizeof(std::uint64_t);

std::uint64_t ordered(std::uint64_t number) noexcept {
  return __builtin_bswap64(number);
}

// Keys of 64 bits are written as such: only a batch with a longer one takes 16 bytes a key.
bool is_wide(std::span<const cache_key> keys) noexcept {
  return std::ranges::any_of(keys, [](const cache_key& key) { return key.high != 0; });
}

void put_keys(byte_writer& out, std::span<const cache_key> keys, bool wide) {
  if (wide) {
    out.put_raw(std::as_bytes(keys));
    return;
  }
  std::vector<std::uint64_t> words(keys.size());
  std::ranges::transform(keys, words.begin(), &cache_key::low);
  out.put_raw(std::as_bytes(std::span(words)));
}

bool get_keys(byte_reader& reader, std::size_t count, bool wide, std::vector<cache_key>& keys) {
  const auto run = reader.get_run(count * (wide ? sizeof(cache_key) : sizeof(std::uint64_t)));
  if (!reader.ok()) return false;
  keys.resize(count);
  if (wide) {
    std::memcpy(keys.data(), run.data(), run.size());
    return true;
  }
  for (std::size_t i = 0; i < count; ++i) std::memcpy(&keys[i].low, run.data() + i * 8, 8);
  return true;
}

template <class T>
bool get_words(byte_reader& reader, std::size_t count, std::vector<T>& words) {
  const auto run = reader.get_run(count * sizeof(T));
  if (!reader.ok()) return false;
  words.resize(count);
  if (!run.empty()) std::memcpy(words.data(), run.data(), run.size());
  return true;
}

bool get_parents(byte_reader& reader, std::size_t blocks, std::vector<parent_link>& parents) {
  const auto count = reader.get<std::uint32_t>();
  if (!reader.ok() || count > blocks) return false;
  parents.resize(count);
  std::uint32_t least = 0;
  for (parent_link& link : parents) {
    link.position = reader.get<std::uint32_t>();
    const auto has_parent = reader.get<std::uint8_t>();
    link.has_parent = has_parent != 0;
    link.parent.low = reader.get<std::uint64_t>();
    link.parent.high = reader.get<std::uint64_t>();
    if (!reader.ok() || has_parent > 1 || link.position < least || link.position >= blocks) return false;
    least = link.position + 1;
  }
  return true;
}

bool get_checksums(byte_reader& reader, std::size_t blocks, block_checksums& checksums) {
  checksums.specs = reader.get<std::uint64_t>();
  const auto count = static_cast<std::size_t>(std::popcount(checksums.specs));
  return reader.ok() && count != 0 && get_words(reader, blocks * count, checksums.values);
}

}  // namespace

std::string row_name(char kind, const extent_name& name) {
  std::string row(row_name_bytes, kind);
  const std::uint64_t instance = ordered(name.instance), extent = ordered(name.extent);
  std::memcpy(row.data() + 1, &instance, sizeof instance);
  std::memcpy(row.data() + 1 + sizeof instance, &extent, sizeof extent);
  return row;
}

std::optional<extent_name> extent_of_row(std::string_view row) {
  if (row.size() != row_name_bytes) return std::nullopt;
  extent_name name;
  std::memcpy(&name.instance, row.data() + 1, sizeof name.instance);
  std::memcpy(&name.extent, row.data() + 1 + sizeof name.instance, sizeof name.extent);
  return extent_name{.instance = ordered(name.instance), .extent = ordered(name.extent)};
}

state_mask::state_mask(std::size_t blocks, location_state state)
    : blocks_(blocks), words_(words_of(blocks), static_cast<std::uint64_t>(state) * 0x5555'5555'5555'5555U) {}

bool state_mask::assign(std::size_t blocks, std::vector<std::uint64_t> words) {
  if (words.size() != words_of(blocks)) return false;
  blocks_ = blocks;
  words_ = std::move(words);
  return true;
}

std::string grant_row(std::string_view row, const extent_grant& grant) {
  const bool wide = is_wide(grant.keys);
  byte_writer out;
  out.put(grant.nonce);
  out.put(grant.deadline_ms);
  out.put(grant.granted_at);
  out.put(grant.storage);
  out.put(static_cast<std::uint8_t>(wide));
  out.put(static_cast<std::uint32_t>(grant.keys.size()));
  out.put(static_cast<std::uint32_t>(grant.specs.size()));
  out.put_raw(std::as_bytes(std::span(grant.specs)));
  put_keys(out, grant.keys, wide);
  out.put(static_cast<std::uint32_t>(grant.parents.size()));
  for (const parent_link& link : grant.parents) {
    out.put(link.position);
    out.put(static_cast<std::uint8_t>(link.has_parent));
    out.put(link.parent.low);
    out.put(link.parent.high);
  }
  return sealed(row, out.bytes(), grant_version);
}

std::optional<extent_grant> read_grant(std::string_view row, std::string_view value) {
  const auto name = extent_of_row(row);
  const auto content = unsealed(row, value, grant_version);
  if (!name || !content) return std::nullopt;
  byte_reader reader(*content);
  extent_grant grant{.name = *name};
  grant.nonce = reader.get<std::uint64_t>();
  grant.deadline_ms = reader.get<std::int64_t>();
  grant.granted_at = reader.get<std::uint32_t>();
  grant.storage = reader.get<std::uint8_t>();
  const auto width = reader.get<std::uint8_t>();
  const auto blocks = reader.get<std::uint32_t>();
  const auto masks = reader.get<std::uint32_t>();
  if (!reader.ok() || blocks == 0 || blocks > most_extent_blocks || (masks != 1 && masks != blocks))
    return std::nullopt;
  if (width > 1 || !get_words(reader, masks, grant.specs) || !get_keys(reader, blocks, width != 0, grant.keys) ||
      is_wide(grant.keys) != (width != 0) || !get_parents(reader, blocks, grant.parents) || reader.remaining() != 0) {
    return std::nullopt;
  }
  return grant;
}

std::string states_row(std::string_view row, const extent_states& states) {
  byte_writer out;
  out.put(states.wrote_at);
  out.put(states.finish_mark);
  out.put(static_cast<std::uint32_t>(states.states.size()));
  out.put_raw(std::as_bytes(states.states.words()));
  if (states.checksums.empty()) return sealed(row, out.bytes(), states_version);
  out.put(states.checksums.specs);
  out.put_raw(std::as_bytes(std::span(states.checksums.values)));
  return sealed(row, out.bytes(), summed_version);
}

std::optional<extent_states> read_states(std::string_view row, std::string_view value) {
  auto content = unsealed(row, value, states_version);
  const bool is_summed = !content;
  if (is_summed) content = unsealed(row, value, summed_version);
  if (!content) return std::nullopt;
  byte_reader reader(*content);
  extent_states states;
  states.wrote_at = reader.get<std::uint32_t>();
  states.finish_mark = reader.get<std::uint64_t>();
  const auto blocks = reader.get<std::uint32_t>();
  std::vector<std::uint64_t> words;
  if (!reader.ok() || blocks == 0 || blocks > most_extent_blocks) return std::nullopt;
  if (!get_words(reader, state_mask::words_of(blocks), words) || !states.states.assign(blocks, std::move(words)) ||
      (is_summed && !get_checksums(reader, blocks, states.checksums)) || reader.remaining() != 0) {
    return std::nullopt;
  }
  return states;
}

std::string finish_row(std::string_view row, const extent_finish& finish) {
  byte_writer out;
  out.put(finish.nonce);
  out.put(finish.wrote_at);
  out.put(finish.finish_mark);
  out.put(finish.blocks);
  return sealed(row, out.bytes(), finish_version);
}

std::optional<extent_finish> read_finish(std::string_view row, std::string_view value) {
  const auto content = unsealed(row, value, finish_version);
  if (!content) return std::nullopt;
  byte_reader reader(*content);
  extent_finish finish;
  finish.nonce = reader.get<std::uint64_t>();
  finish.wrote_at = reader.get<std::uint32_t>();
  finish.finish_mark = reader.get<std::uint64_t>();
  finish.blocks = reader.get<std::uint32_t>();
  if (!reader.ok() || reader.remaining() != 0 || finish.blocks == 0 || finish.blocks > most_extent_blocks) {
    return std::nullopt;
  }
  return finish;
}

}  // namespace cenote::manager
