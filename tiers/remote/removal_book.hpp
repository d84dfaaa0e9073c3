// Removals that some other node has not confirmed, and the numbers of clears: kept in a file, so that neither ends with
// a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/pool.hpp"
#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "tiers/remote/backend.hpp"

namespace cenote {
class byte_reader;
}

namespace cenote::remote {

/// A removal is done when every node that may have a copy has confirmed it in one round; until then it stands here. The
/// names of all nodes that may have copies stand here however long they are away, until they are written off. In the
/// file: magic, version, floor, clears, orders, names, write-offs, instances, XXH3-64 of all that. Not thread-safe.
class removal_book {
 public:
  /// All of an instance, or some keys of it.
  struct open_removal {
    instance_identity identity{};
    std::uint64_t cleared = 0;      ///< number of the clear; 0: keys
    std::vector<block_key> keys{};  ///< without a clear
    std::vector<std::byte> spec{};  ///< of the instance, encoded; may be empty
    std::set<std::string> nodes{};  ///< that have not confirmed it
    std::uint64_t sequence = 0;     ///< place among this worker's removals, by their beginning; 0: of an earlier worker
    std::string group{};            ///< that pays for the instance; set by the book, empty without a spec
  };
  /// Bounds of what is kept. Beyond them the instance that has most pays: one clear takes the place of its orders,
  /// which removes more and forgets nothing. Where each instance has one order, the oldest of the instance group with
  /// most goes, which dropped() counts.
  static constexpr std::size_t most_orders = 1024;
  static constexpr std::size_t most_keys = 65536;
  static constexpr std::size_t most_nodes = 1024;  ///< of one order, and names in all
  /// Of the specs of instances. Beyond them the oldest of the instance group that has most goes.
  static constexpr std::size_t most_spec_bytes = std::size_t{4} << 20U;

  /// Another node that may have copies.
  struct known_node {
    std::uint64_t departure = 0;  ///< the number of its absence, a later one's is greater; 0: it is here
    bool is_settled = false;      ///< it left drained, or nothing of it outlives it: no removal waits for it
  };

  /// An instance of which other nodes may have blocks: an operator may clear it when it is in use no more.
  struct known_instance {
    std::vector<std::byte> spec{};  ///< encoded
    std::string group{};            ///< that pays for it
    std::uint64_t number = 0;       ///< a later one's is greater
  };

  /// The number of a clear of all of the instance; 0: it is kept elsewhere until it is confirmed.
  using clear_maker = std::function<std::uint64_t(const instance_identity&)>;

  /// In memory alone.
  removal_book() = default;
  /// Reads the file; without one the book is empty. A damaged one counts as a book that knows of a clear of every
  /// instance at `now` (nanoseconds since 1970). Errors: `system` when the file cannot be read or written.
  [[nodiscard]] static result<removal_book> open(std::filesystem::path file, std::uint64_t now);

  /// An order of the same instance that began before and that it covers goes, and its nodes are this one's, too. Its
  /// number, which find() does not know if a clear has its place already. Without `next_clear` orders are dropped.
  std::uint64_t add(open_removal added, const clear_maker& next_clear = {});
  /// These nodes have not confirmed it yet; none: it is done.
  void keep(std::uint64_t number, std::set<std::string> nodes);
  [[nodiscard]] const open_removal* find(std::uint64_t number) const noexcept;
  [[nodiscard]] const std::map<std::uint64_t, open_removal>& orders() const noexcept { return orders_; }
  /// Counts the orders of an instance, and the nodes that have not confirmed one of them or are in `nodes`.
  [[nodiscard]] unconfirmed_removals count(const instance_identity& identity, std::set<std::string> nodes = {}) const;
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }
  /// Instances whose orders a clear has replaced.
  [[nodiscard]] std::uint64_t forced_clears() const noexcept { return forced_clears_; }
  /// Orders that made room since the last call, or that a later one covers.
  [[nodiscard]] std::vector<open_removal> take_replaced() { return std::exchange(replaced_, {}); }
  [[nodiscard]] bool was_damaged() const noexcept { return was_damaged_; }
  /// Other nodes that may have copies, by name; those of an earlier worker are away until they are met. At most
  /// most_nodes are written.
  [[nodiscard]] const std::map<std::string, known_node>& nodes() const noexcept { return nodes_; }
  [[nodiscard]] bool is_settled(const std::string& name) const noexcept;
  void note_here(const std::string& name);
  void note_away(const std::string& name);
  /// Of a node whose name stands here.
  void note_settled(const std::string& name);
  /// The node has no blocks that removals have missed, or clears them before they are used.
  void forget_node(const std::string& name);
  /// The node to be forgotten while there are too many names: one that is settled, or the longest away. Empty: there is
  /// room, or all are here.
  [[nodiscard]] std::string excess_node() const;

  /// Instances that were used here, by this worker and by earlier ones.
  [[nodiscard]] const std::map<instance_identity, known_instance>& instances() const noexcept { return instances_; }
  /// False: it is known.
  bool note_instance(const instance_identity& identity, std::vector<std::byte> spec);

  /// As they were when the file was written last.
  [[nodiscard]] const cluster::clear_record& clears() const noexcept { return clears_; }
  [[nodiscard]] const cluster::write_off_record& departures() const noexcept { return departures_; }
  /// Changed since the file was written.
  [[nodiscard]] bool is_changed() const noexcept { return is_changed_; }
  /// Writes the file, if there is one. Blocks for the disk. What could not be written is still changed.
  [[nodiscard]] result<void> write(cluster::clear_record clears, cluster::write_off_record departures);

 private:
  [[nodiscard]] bool decode(std::string_view bytes);
  [[nodiscard]] bool decode_order(byte_reader& reader);
  [[nodiscard]] bool decode_departures(byte_reader& reader, std::uint32_t version);
  [[nodiscard]] static bool decode_nodes(byte_reader& reader, std::set<std::string>& names);
  [[nodiscard]] bool decode_known(byte_reader& reader, std::uint32_t version);
  [[nodiscard]] bool decode_instances(byte_reader& reader, std::uint32_t version);
  void drop_oldest_instance();
  void make_room(const clear_maker& next_clear);
  [[nodiscard]] std::pair<instance_identity, std::size_t> largest_instance(bool by_orders) const;
  [[nodiscard]] std::uint64_t oldest_of_largest_group() const;
  void replace_with_clear(const instance_identity& identity, const clear_maker& next_clear);
  void note_replaced(open_removal order);

  std::filesystem::path file_;
  std::map<std::uint64_t, open_removal> orders_;  ///< by number: the oldest first
  cluster::clear_record clears_;
  cluster::write_off_record departures_;
  std::map<std::string, known_node> nodes_;  ///< by name
  std::uint64_t departures_noted_ = 0;
  std::map<instance_identity, known_instance> instances_;
  std::uint64_t next_instance_ = 1;
  std::size_t spec_bytes_ = 0;  ///< of all instances
  std::vector<open_removal> replaced_;
  std::uint64_t next_ = 1;
  std::uint64_t dropped_ = 0, forced_clears_ = 0;
  std::size_t keys_ = 0;  ///< of all orders
  bool is_changed_ = false;
  bool was_damaged_ = false;
};

}  // namespace cenote::remote
