// Nodes that never come back, by the word of an operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace cenote::cluster {

/// As write_offs keeps them.
struct write_off_record {
  std::map<std::string, std::uint64_t> nodes{};  ///< number of the last write-off of each, by name
  std::deque<std::uint64_t> closed{};            ///< numbers of write-offs that are over, the oldest first
  bool is_incomplete = false;                    ///< older ones gave way: a node that is not known may be one of them
};

/// A removal does not wait for a node that is written off. Should that node come back all the same, no block of it is
/// used before it has cleared all of them and confirmed that. Then the write-off is over, here and at the node itself,
/// which does not clear its blocks a second time for the same number. Not thread-safe.
class write_offs {
 public:
  static constexpr std::size_t most_write_offs = 1024;  ///< nodes: the oldest goes, and is_incomplete() holds for good
  static constexpr std::size_t most_numbers = 256;      ///< of write-offs that are over: the oldest goes

  [[nodiscard]] bool has(const std::string& name) const noexcept { return record_.nodes.contains(name); }
  /// 0: it is not written off.
  [[nodiscard]] std::uint64_t number_of(const std::string& name) const noexcept;
  /// A write-off that begins at this node, with a number of its own. `now`: nanoseconds since 1970.
  void begin(const std::string& name, std::uint64_t now);
  /// One that another node knows. False: it is known here, is over, or is older than all of those that have room.
  bool learn(const std::string& name, std::uint64_t number);
  /// The node has cleared its blocks for that number; a later write-off of it stays.
  void close(const std::string& name, std::uint64_t number);
  /// Another node has that confirmation of the node. The number is not learned any more; where it is
  /// known, it stays until the node has confirmed it here, too.
  void close_elsewhere(std::uint64_t number);
  /// This node has cleared its blocks for it, or another node has.
  [[nodiscard]] bool is_closed(std::uint64_t number) const noexcept;

  /// A write-off was forgotten: a node of which nothing is known may be the one, and counts as written off.
  [[nodiscard]] bool is_incomplete() const noexcept { return record_.is_incomplete; }

  [[nodiscard]] const write_off_record& record() const noexcept { return record_; }
  void restore(write_off_record record) { record_ = std::move(record); }
  /// Grows with each change of record().
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }

 private:
  void make_room();

  write_off_record record_;
  std::uint64_t changes_ = 0;
};

}  // namespace cenote::cluster
