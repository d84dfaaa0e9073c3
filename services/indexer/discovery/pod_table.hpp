// Pods of a label, from the API server's lists and watches: a plain object that reads JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote::indexer {

/// Addresses (IPv4 or IPv6) of pods that run, by "namespace/name".
using pod_addresses = std::map<std::string, std::string>;

/// Difference that a part of a watch made.
struct watch_part {
  bool has_changes = false;  ///< of pods()
  bool is_expired = false;   ///< the server knows the version no more: a new list is needed
};

/// As the Kubernetes API has it ("Efficient detection of changes"): a list in pages with a version, then changes since.
/// A pod counts from the moment in which it runs and has an address to its end; whether it is ready is its router's
/// question. One thread.
class pod_table {
 public:
  static constexpr std::size_t most_pods = 16'384;
  static constexpr std::size_t most_line = std::size_t{4} << 20;  ///< bytes of a change
  static constexpr std::size_t most_token = 64 * 1024;            ///< bytes of "continue", and of a version

  /// A list begins; pods() stay as they are until it is whole.
  void begin_list();
  /// A page of it. Returns the token of the next page; empty: the list is whole and has taken effect. Errors:
  /// malformed; then the list must begin anew.
  [[nodiscard]] result<std::string> add_page(std::string_view json);

  /// A watch begins behind version().
  void begin_watch() { rest_.clear(); }
  /// A part of its body: lines, cut anywhere. A line that cannot be read is passed over and counted. Errors: malformed
  /// (a line is too long), system (the server reports an error).
  [[nodiscard]] result<watch_part> add_changes(std::string_view part);

  [[nodiscard]] const pod_addresses& pods() const noexcept { return pods_; }
  /// The version that lists and changes have reached, which the server alone understands.
  [[nodiscard]] const std::string& version() const noexcept { return version_; }
  /// Pods and lines that were passed over: beyond the bound, without a name, no JSON.
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }

 private:
  [[nodiscard]] result<void> add_change(std::string_view line, watch_part& sum);

  pod_addresses pods_, listed_;
  std::string version_, rest_;
  std::uint64_t refused_ = 0;
};

}  // namespace cenote::indexer
