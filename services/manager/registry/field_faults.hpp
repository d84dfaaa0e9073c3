// The faults of a request, all of them, for one answer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// Collects the fields that are wrong, so that an answer names all of them at once. Not thread-safe.
class field_faults {
 public:
  /// `field` is its path in the request: "nfs.root_path".
  void add(std::string_view field, std::string_view fault);
  /// Adds a fault unless `name` has 1 to longest_name bytes of UTF-8 without control characters.
  void check_name(std::string_view field, std::string_view name);
  /// Adds a fault where `value` is negative.
  void check_count(std::string_view field, std::int64_t value);

  [[nodiscard]] bool empty() const noexcept { return text_.empty(); }
  /// An invalid_argument with all faults, if there are any.
  [[nodiscard]] rpc_outcome<> outcome() const;

 private:
  std::string text_;
};

/// "field[3]", for paths of faults.
[[nodiscard]] std::string indexed(std::string_view field, std::size_t index);

}  // namespace cenote::manager
