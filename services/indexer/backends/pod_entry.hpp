// The fields of a block's hash in a shared index: one for each pod and tier that has it, as llm-d writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cenote::indexer {

/// A pod that has a block in a tier.
struct pod_entry {
  std::string pod{};
  std::string tier{};                   ///< "gpu", in lower case
  bool is_speculative = false;          ///< a router expects it there
  std::optional<std::int64_t> group{};  ///< cache group

  bool operator==(const pod_entry&) const = default;
};

/// Names of pods, tiers and others that are longer are not read.
inline constexpr std::size_t most_entry_name = 256;

/// The text of the field, byte for byte as Go's encoding/json has it: entries of several writers are one.
[[nodiscard]] std::string field_text(const pod_entry& entry);
/// The beginning of all fields of a pod, or of a pod in a tier.
[[nodiscard]] std::string field_begin(std::string_view pod, std::string_view tier);
/// Members in any order, unknown ones are passed. Nothing: no JSON object with a pod and a tier.
[[nodiscard]] std::optional<pod_entry> parse_field(std::string_view text);

}  // namespace cenote::indexer
