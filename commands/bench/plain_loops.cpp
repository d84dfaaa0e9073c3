#include "commands/bench/plain_loops.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "core/huge_vector.hpp"
#include "core/unique_fd.hpp"
#include "core/units.hpp"

namespace cenote::bench {

namespace {

constexpr std::size_t file_buffer = 256 * KiB;
constexpr std::uint64_t hash_factor = 0x9e3779b97f4a7c15ULL;  // 2^64 by the golden ratio

std::uint64_t line_ends(std::span<const char> bytes) noexcept {
  std::uint64_t count = 0;
  const char* position = bytes.data();
  const char* const end = position + bytes.size();
  while (position < end) {
    const void* const found = std::memchr(position, '\n', static_cast<std::size_t>(end - position));
    if (found == nullptr) break;
    ++count;
    position = static_cast<const char*>(found) + 1;
  }
  return count;
}

}  // namespace

result<std::uint64_t> count_lines(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno("open", path);
  std::vector<char> buffer(file_buffer);
  std::uint64_t count = 0;
  while (true) {
    const ssize_t bytes = ::read(file.get(), buffer.data(), buffer.size());
    if (bytes < 0) return fail_errno("read", path);
    if (bytes == 0) return count;
    count += line_ends(std::span(buffer).first(static_cast<std::size_t>(bytes)));
  }
}

std::uint64_t count_repeats(std::span<const std::uint64_t> ids, std::size_t distinct) {
  struct place {
    std::uint64_t id = 0;
    std::uint64_t position = 0;  // of its last use, from 1 on; 0: the place is free
  };
  const std::size_t places = std::bit_ceil(2 * distinct + 2);
  const int shift = 64 - std::countr_zero(places);
  huge_vector<place> table(places);
  std::uint64_t repeats = 0;
  std::uint64_t position = 0;
  for (const std::uint64_t id : ids) {
    std::size_t slot = (id * hash_factor) >> shift;
    while (table[slot].position != 0 && table[slot].id != id) slot = (slot + 1) & (places - 1);
    if (table[slot].position != 0) ++repeats;
    table[slot] = {id, ++position};
  }
  return repeats;
}

record_counts check_records(const memory::record_table& records, std::uint32_t count) {
  record_counts found;
  for (std::uint32_t i = 0; i < count; ++i) {
    const memory::block_record& record = records[i];
    if (record.state() != memory::block_state::present) continue;
    ++found.present;
    const full_key key = record.get_key();
    if (key.size < min_key_bytes) ++found.damaged;
    found.keys ^= reduce_key(key.view(), 0).lo + record.version();
  }
  return found;
}

counted_keys::counted_keys(key_batch keys) {
  entries_.reserve(keys.count);
  for (std::size_t i = 0; i < keys.count; ++i) entries_[reduce_key(keys[i], 0)].key = full_key(keys[i]);
}

std::size_t counted_keys::hold(key_batch keys, std::span<std::atomic<std::uint32_t>*> references) {
  for (std::size_t i = 0; i < keys.count; ++i) {
    const auto found = entries_.find(reduce_key(keys[i], 0));
    if (found == entries_.end() || !(found->second.key == full_key(keys[i]))) return i;
    found->second.holders.fetch_add(1);
    references[i] = &found->second.holders;
  }
  return keys.count;
}

void counted_keys::release(std::span<std::atomic<std::uint32_t>* const> references) noexcept {
  for (auto* const each : references) each->fetch_sub(1);
}

std::uint32_t counted_keys::holders(std::span<const std::byte> key) const {
  const auto found = entries_.find(reduce_key(key, 0));
  return found == entries_.end() ? 0 : found->second.holders.load();
}

}  // namespace cenote::bench
