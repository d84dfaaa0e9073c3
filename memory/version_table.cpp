#include "memory/version_table.hpp"

#include <cstring>

namespace cenote::memory {

namespace {

constexpr std::size_t word_bytes = 8;
constexpr std::size_t head_bytes = 48;

/// The `i`-th 8-byte word of a key, padded with zeros.
std::uint64_t key_word(std::span<const std::byte> key, std::size_t i) noexcept {
  std::uint64_t word = 0;
  const std::size_t from = i * word_bytes;
  if (from + word_bytes <= key.size()) {
    std::memcpy(&word, key.data() + from, word_bytes);
  } else if (from < key.size()) {
    std::memcpy(&word, key.data() + from, key.size() - from);
  }
  return word;
}

}  // namespace

result<version_table> version_table::map(shared_file file, access mode) {
  version_table made;
  made.file_ = std::move(file);
  struct place {
    window* where;
    file_part part;
  };
  for (const place& each :
       {place{&made.hot_, {0, cold_offset}}, place{&made.cold_, {cold_offset, directory_offset - cold_offset}},
        place{&made.directory_, {directory_offset, segment_bytes - directory_offset}}}) {
    auto mapped = window::open(made.file_, each.part, mode, page_bytes);
    if (!mapped) return std::unexpected(mapped.error());
    *each.where = std::move(*mapped);
  }
  return made;
}

result<version_table> version_table::create(shared_file file) {
  auto made = map(std::move(file), access::read_write);
  if (made) write_header(made->header(), segment_kind::versions, segment_bytes);
  return made;
}

result<version_table> version_table::open(shared_file file, access mode) {
  auto made = map(std::move(file), mode);
  if (!made) return made;
  if (auto ok = check_header(made->header(), segment_kind::versions, segment_bytes); !ok) {
    return std::unexpected(ok.error());
  }
  return made;
}

result<void> version_table::make_room(std::uint32_t index, std::uint32_t first, std::uint32_t count) const {
  const key_tail* tails = reach_tail(first + count - 1);
  if (slab(index) != nullptr && reach(first, count) && tails != nullptr) return {};
  return fail(error_code::limit_exceeded, "no address space for the versions of " + std::to_string(count) +
                                              " more blocks (from " + std::to_string(first) + ")");
}

void version_table::populate(std::uint32_t first, std::uint32_t count) const noexcept {
  hot_.populate(hot_offset + std::uint64_t{first} * sizeof(version_entry),
                std::uint64_t{count} * sizeof(version_entry));
}

const key_tail* version_table::reach_tail(std::uint32_t version_index) const noexcept {
  return reinterpret_cast<const key_tail*>(
      cold_.reach(std::uint64_t{version_index} * sizeof(key_tail), sizeof(key_tail)));
}

bool version_table::other_key_equals(std::uint32_t version_index, std::span<const std::byte> key) const noexcept {
  const version_entry& hot = entry(version_index);
  const std::size_t words = (key.size() + word_bytes - 1) / word_bytes;
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < words && i < 6; ++i) {
    difference |= hot.key[i].load(std::memory_order_relaxed) ^ key_word(key, i);
  }
  const key_tail* tail = words > 6 ? reach_tail(version_index) : nullptr;
  if (words > 6 && tail == nullptr) return false;
  for (std::size_t i = 6; i < words; ++i) {
    difference |= tail->key[i - 6].load(std::memory_order_relaxed) ^ key_word(key, i);
  }
  return difference == 0;
}

void version_table::set_idle_since(boot_time when) const noexcept {
  shared_assign(header().spare[0], std::uint64_t{count_of(when)}, "instance.idle"_point);
}

void version_table::retire() const noexcept {
  shared_store(header().retired, 1, std::memory_order_release, "instance.retired"_point);
}

full_key version_table::key(std::uint32_t version_index) const noexcept {
  full_key key;
  const version_entry& hot = entry(version_index);
  const std::uint64_t size = hot.key_size.load(std::memory_order_relaxed);
  if (size > max_key_bytes) return key;
  key.size = static_cast<std::uint8_t>(size);
  for (std::size_t i = 0; i * word_bytes < size; ++i) {
    const std::uint64_t word = i < 6 ? hot.key[i].load(std::memory_order_relaxed)
                                     : tail(version_index).key[i - 6].load(std::memory_order_relaxed);
    std::memcpy(key.bytes.data() + i * word_bytes, &word, word_bytes);
  }
  return key;
}

void version_table::set_key(std::uint32_t version_index, const full_key& key) const noexcept {
  version_entry& hot = entry(version_index);
  std::array<std::uint64_t, 8> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = key_word(key.view(), i);
  shared_words(hot.key, words.data(), 6, "versions.key"_point);
  // Else the tail's pages stay untouched.
  if (key.size > head_bytes) shared_words(tail(version_index).key, words.data() + 6, 2, "versions.key_tail"_point);
  shared_store(hot.key_size, key.size, std::memory_order_relaxed, "versions.key_size"_point);
}

}  // namespace cenote::memory
