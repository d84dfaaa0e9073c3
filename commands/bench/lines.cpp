#include "commands/bench/lines.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "memory/block_ref.hpp"
#include "memory/index.hpp"

namespace cenote::bench {

namespace {

using memory::index_value;

constexpr std::uintptr_t line_bytes = 64;
constexpr std::size_t lines_ahead = 32;

__extension__ using wide = unsigned __int128;

const std::uint64_t* line_at(const void* address) noexcept {
  const auto* byte = static_cast<const std::byte*>(address);
  return reinterpret_cast<const std::uint64_t*>(byte - reinterpret_cast<std::uintptr_t>(address) % line_bytes);
}

/// Adds the lines of the key's probes in one table; the value under the key, or index_value::empty.
std::uint64_t probe(const memory::index_memory& index, const memory::index_table& table, const block_key& key,
                    cache_lines& out) {
  const std::uint64_t slots = table.slots.load(std::memory_order_acquire);
  const auto* entries = reinterpret_cast<const memory::index_entry*>(
      index.tables.reach(table.offset.load(std::memory_order_acquire), slots * sizeof(memory::index_entry)));
  if (entries == nullptr) return index_value::empty;
  auto slot = static_cast<std::uint64_t>((static_cast<wide>(key.hi) * slots) >> 64);  // as memory/index.cpp
  for (std::uint64_t probes = 0; probes < slots; ++probes, slot = slot + 1 == slots ? 0 : slot + 1) {
    const memory::index_entry& entry = entries[slot];
    for (const void* word : {static_cast<const void*>(&entry.hi), static_cast<const void*>(&entry.value)}) {
      if (out.empty() || out.back() != line_at(word)) out.push_back(line_at(word));
    }
    const std::uint64_t value = entry.value.load(std::memory_order_acquire);
    if (value == index_value::empty) break;
    const bool same =
        entry.hi.load(std::memory_order_relaxed) == key.hi && entry.lo.load(std::memory_order_relaxed) == key.lo;
    if (same && index_value::holds_block(value)) return value;
  }
  return index_value::empty;
}

std::uint64_t find(const lookup_memory& where, const block_key& key, cache_lines& out) {
  const auto& header = where.index.header();
  const std::uint64_t state = header.state.load(std::memory_order_acquire);
  for (const std::uint64_t number : {(state >> 8) & 0xff, state & 0xff}) {
    if (number >= header.tables.size()) continue;
    if (const auto value = probe(where.index, header.tables[number], key, out); value != index_value::empty)
      return value;
  }
  return index_value::empty;
}

}  // namespace

result<cache_lines> lines_of(const lookup_memory& where, key_batch keys) {
  cache_lines out;
  for (std::size_t i = 0; i < keys.count; ++i) {
    const std::uint64_t value = find(where, reduce_key(keys[i], 0), out);
    if (value == index_value::empty) return std::unexpected(check_all(i, keys.count).error());
    const auto block = index_value::ref(value);
    const memory::slab_entry* slab = where.versions.slab(block.slab());
    if (slab == nullptr || !where.versions.reach(slab->first_version + block.block(), 1)) {
      return fail(error_code::limit_exceeded, "no address space for the version table");
    }
    out.push_back(line_at(&where.versions.entry(slab->first_version + block.block())));
  }
  return out;
}

std::uint64_t read_lines(std::span<const std::uint64_t* const> lines) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i + lines_ahead < lines.size()) __builtin_prefetch(lines[i + lines_ahead]);
    sum += __atomic_load_n(lines[i], __ATOMIC_RELAXED);
  }
  return sum;
}

result<lookup_view> lookup_view::open(const std::string& socket, const instance_spec& spec) {
  const local::attach_request request{.spec = spec, .max_pins = 1, .token = {}, .client_name = "cenote bench"};
  auto parts = client::attach_to(socket, request, std::chrono::steady_clock::now() + std::chrono::seconds(20));
  if (!parts) return std::unexpected(parts.error());
  return lookup_view(std::move(*parts));
}

result<std::vector<chain>> pick_chains(const lookup_memory& where, const key_list& keys, std::size_t count,
                                       std::size_t length) {
  const std::size_t possible = keys.size() / length;
  count = std::min(count, possible);
  std::vector<chain> out;
  for (std::size_t i = 0; i < count; ++i) {
    chain next{keys.some(i * possible / count * length, length), {}};
    auto lines = lines_of(where, next.keys);
    if (!lines) return std::unexpected(lines.error());
    next.lines = std::move(*lines);
    out.push_back(std::move(next));
  }
  return out;
}

}  // namespace cenote::bench
