// The agreement under which blocks are cached: what an instance is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/byte_io.hpp"
#include "core/error.hpp"

namespace cenote {

inline constexpr std::size_t max_groups = 16;
inline constexpr std::size_t max_name_bytes = 255;  ///< of an instance's id, of a client's name, …
inline constexpr std::size_t max_parts = 64;
inline constexpr std::uint64_t max_block_bytes = std::uint64_t{1} << 30;  ///< a block never straddles a slab
inline constexpr std::uint64_t block_alignment = 4096;                    ///< bytes; the stride is a multiple of it

/// One rank's share of a block. Parts lie back to back in declared order.
struct part_spec {
  std::string name;
  std::uint64_t bytes = 0;
  bool operator==(const part_spec&) const = default;
};

/// One kind of state of the model (full attention, a sliding window, …); cached independently of the others.
struct group_spec {
  std::string name;
  std::vector<part_spec> parts;
  bool operator==(const group_spec&) const = default;

  /// Sum of the parts, bytes.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept;
  /// block_bytes rounded up to block_alignment.
  [[nodiscard]] std::uint64_t stride() const noexcept;
  /// One bit a part; a block is complete when all are written.
  [[nodiscard]] std::uint64_t all_parts() const noexcept;
  /// Byte offset of part `index` in the block.
  [[nodiscard]] std::uint64_t part_offset(std::size_t index) const noexcept;
};

/// An immutable agreement. Two instances never share a block.
struct instance_spec {
  std::string id;
  std::string model;
  std::string dtype;
  std::string layout;
  std::uint32_t tokens_per_block = 0;
  std::vector<group_spec> groups;
  std::string hash_scheme;
  std::string fingerprint;     ///< of the weights; empty: none given
  std::string instance_group;  ///< who pays; empty: the instance is its own group

  bool operator==(const instance_spec&) const = default;

  /// The name under which quotas apply.
  [[nodiscard]] const std::string& paying_group() const noexcept {
    return instance_group.empty() ? id : instance_group;
  }
  /// Index of the group called `name`, if any.
  [[nodiscard]] std::optional<std::uint32_t> find_group(std::string_view name) const noexcept;
};

/// Refuses what can never work: empty id, no group, no part, zero or absurd sizes, duplicate names; and names that are
/// too long, not UTF-8, or hold control characters.
[[nodiscard]] result<void> validate(const instance_spec& spec);

/// Names the first field in which two specs differ and both values, or nothing when they agree.
[[nodiscard]] std::optional<std::string> first_difference(const instance_spec& have, const instance_spec& want);

void encode(byte_writer& out, const instance_spec& spec);
/// Reads and validates, but for the characters of names: what an earlier version kept is still read. Specs of clients
/// pass validate() as well.
[[nodiscard]] result<instance_spec> decode_instance_spec(byte_reader& reader);

}  // namespace cenote
