// Chains of keys for tests of the index, and what a reader answers as plain values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/indexer/forest/prefix_reader.hpp"

namespace cenote::indexer::test {

using numbers = std::vector<std::uint64_t>;

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  return spread(a * 0x9e37'79b9U + 1, b);
}

/// Keys of a chain: each depends on all before it.
inline numbers chain(std::uint64_t seed, std::size_t length, std::uint64_t parent = 0) {
  numbers keys(length);
  for (std::size_t i = 0; i < length; ++i) parent = keys[i] = mixed(parent, seed + i);
  return keys;
}

/// Engine hashes of keys in a domain.
inline numbers names_of(std::span<const std::uint64_t> keys, std::uint64_t salt = 7) {
  numbers names;
  for (const std::uint64_t key : keys) names.push_back(mixed(key, salt));
  return names;
}

struct answer {
  std::uint32_t blocks = 0;
  double score = 0;
  std::array<std::uint32_t, most_media> by_medium{};
  bool operator==(const answer&) const = default;
};
using answers = std::map<std::pair<std::string, int>, answer>;

inline answers ask(prefix_reader& reader, std::span<const std::uint64_t> keys,
                   std::span<const std::string_view> pods = {}) {
  answers all;
  reader.walk({.keys = keys, .pods = pods}, [&](std::span<const prefix_row> rows) {
    for (const prefix_row& row : rows) {
      all[{std::string(row.member->pod()), row.member->rank}] = {row.blocks, row.score, row.by_medium};
    }
  });
  return all;
}

inline std::uint32_t blocks_of(prefix_reader& reader, std::span<const std::uint64_t> keys, const std::string& pod,
                               int rank = 0) {
  const answers all = ask(reader, keys);
  const auto found = all.find({pod, rank});
  return found == all.end() ? 0 : found->second.blocks;
}

struct world {
  explicit world(std::size_t memory = std::size_t{16} << 20, std::size_t repeats = 1000)
      : index({.memory = memory, .members = 1024, .repeats = repeats, .seed = 42}),
        reader(std::move(*prefix_reader::open(index))) {}

  holder open(std::string_view pod, medium_number medium = gpu_medium, std::uint16_t rank = 0) {
    return *index.holders().open({.pod = pod, .rank = rank, .kind = kind_of(0, medium)});
  }
  std::size_t store(std::span<const std::uint64_t> keys, holder stored_by, block_number parent = no_block,
                    name_domain domain = 0) {
    return index.store(domain, parent, keys, names_of(keys), stored_by).value_or(0);
  }
  block_number block(std::uint64_t key, name_domain domain = 0) { return index.block_of(domain, mixed(key, 7)); }
  block_change remove(std::span<const std::uint64_t> keys, holder removed, name_domain domain = 0) {
    return index.remove(domain, names_of(keys), removed);
  }

  forest index;
  prefix_reader reader;
};

}  // namespace cenote::indexer::test
