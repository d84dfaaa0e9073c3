// A DRAM store with everything around it that a node has, in one thread: the keeper's descriptors, slab memory,
// clients.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "memory/index.hpp"
#include "memory/session_memory.hpp"
#include "memory/version_table.hpp"
#include "tiers/blocks/store.hpp"

namespace cenote::blocks::testing {

/// The `n`-th key; different for each n.
full_key key_of(std::uint64_t n, std::size_t width = 16);
/// Contents that derive from the key: a block of another key never looks the same.
void fill(std::byte* to, std::uint64_t bytes, const full_key& key);
bool holds(const std::byte* source, std::uint64_t bytes, const full_key& key);

/// One group of `parts` equal parts.
instance_spec spec_of(const std::string& id, std::uint64_t block_bytes = 4096, std::size_t parts = 1,
                      const std::string& instance_group = "");

/// A small tier that evicts only when it must.
store_options options_of(std::uint64_t capacity, std::uint64_t slab_bytes = 0);

/// The store, and what outlives it: the keeper's copies of every segment, as clients would map them.
class node {
 public:
  explicit node(store_options with);

  instance_number add(const instance_spec& spec);
  session_number attach(instance_number to, std::uint32_t pins);
  /// The process of session `number` is gone.
  void bury(session_number number);

  /// Carries out what the store asked for. True when there was anything.
  bool pump();
  /// Runs a batch to its end, with memory from pump(), and hands out the answers.
  std::vector<memory::completion> run(batch work);
  /// The worker dies and another one takes over. Returns what rebuild() says.
  std::uint64_t restart();
  /// A second store object over the same segments takes over from a process that was killed.
  std::uint64_t recover();

  [[nodiscard]] std::byte* bytes(instance_number instance, memory::block_ref ref) const;
  [[nodiscard]] memory::index_reader index(instance_number instance) const;
  /// Mapped as far as its slabs go.
  [[nodiscard]] const memory::version_table& versions(instance_number instance) const;
  [[nodiscard]] memory::session_memory session(session_number number) const;
  [[nodiscard]] const slab_description* slab(instance_number instance, std::uint32_t index) const;
  [[nodiscard]] memory::block_record& record(instance_number instance, memory::block_ref ref) const;
  [[nodiscard]] memory::crash_guard guard() const { return records_.guard(); }
  [[nodiscard]] store_status status() const { return tier->status(now); }
  [[nodiscard]] std::uint64_t present(instance_number instance) const;

  /// Compares status() with the records, the index and the version tables; the first thing that is wrong, in words.
  [[nodiscard]] std::string broken_identity() const;

  struct kept_instance {
    instance_spec spec;
    memory::index_memory index;
    memory::version_table versions;
    std::uint32_t owner = 0;
  };
  struct kept_slab {
    slab_description what;
    memory::segment memory;
  };
  struct kept_session {
    instance_number in = 0;
    std::uint32_t pins = 0;
    memory::segment memory;
    std::uint32_t uid = 0;
  };

  store_options options;
  std::uint32_t uid = 1000;  ///< of clients that attach from now on
  std::unique_ptr<store> tier;
  boot_time now = boot_time_of(10);
  std::uint32_t owner = 0;                 ///< of instances that are added
  bool memory_is_short = false;            ///< slabs cannot be made
  std::optional<std::uint64_t> slab_room;  ///< address space that recover() has for each slab
  /// Where slab memory comes from; make_slab_memory() when empty.
  std::function<result<memory::segment>(const slab_description&)> make_memory;
  std::function<void(const slab_description&)> on_drop;
  std::function<void(const batch&)> before_run;  ///< what a ring would still hold if the worker died now
  std::function<void(const batch&)> after_run;
  std::map<instance_number, kept_instance> instances;
  std::map<std::pair<instance_number, std::uint32_t>, kept_slab> slabs;
  std::map<session_number, kept_session> sessions;

 private:
  /// Of a device it is an address that nobody may touch: clients have the memory itself.
  [[nodiscard]] memory::slab_mapping as_store_has_it(memory::segment memory) const;

  memory::record_table records_;  ///< a mapping of our own
  instance_number next_instance_ = 1;
  session_number next_session_ = 1;
};

/// A blank block in a client's hands.
struct blank {
  memory::block_ref ref;
  std::uint32_t version = 0;
};

enum class look : std::uint8_t { miss, right, wrong };

/// An engine process: submits batches, fills and reads blocks by the protocol.
class client {
 public:
  client(node& at, instance_number of, std::uint32_t pins = 64);

  /// Numbers the entries, marks the last one and runs them; all answers.
  std::vector<memory::completion> run(std::vector<memory::submission> entries);
  /// As above for batches with one answer.
  memory::completion ask(std::vector<memory::submission> entries);

  /// Asks for blank blocks; how many came.
  std::uint64_t grant(std::uint64_t n, std::uint16_t group = 0);
  /// Takes a granted block as the protocol says.
  std::optional<blank> take(std::uint16_t group = 0);
  /// Takes one, asking if there is none.
  std::optional<blank> obtain(std::uint16_t group = 0);

  memory::submission commit_of(const blank& what, const full_key& key, std::uint16_t group = 0) const;
  memory::submission entry_of(memory::operation op, const full_key& key, std::uint64_t argument = 0,
                              std::uint16_t group = 0) const;
  memory::submission entry_of(memory::operation op, const blank& what, std::uint64_t argument = 0) const;

  /// Fills and commits a block a key. The answer's value: newly stored; its code: ok or why not.
  memory::completion put(std::span<const full_key> keys, std::uint16_t group = 0);
  memory::completion put(const full_key& key, std::uint16_t group = 0) { return put(std::span(&key, 1), group); }
  memory::completion reserve(const full_key& key, std::uint64_t parts);
  memory::completion finish(const blank& what, std::uint64_t parts);
  memory::completion remove(const full_key& key);
  void touch(std::span<const full_key> chain);
  /// What is here of `chain` is kept from now on, or no more.
  memory::completion keep(std::span<const full_key> chain, bool kept = true);
  /// As an engine: uses the resident prefix of `chain`, then stores the rest. Returns the length of the prefix.
  std::size_t request(std::span<const full_key> chain);

  /// The reader's protocol, ending with the comparison of the contents.
  look read(const full_key& key, std::uint16_t group = 0);
  /// Pins and keeps; the slot, or nothing on a miss.
  std::optional<std::uint32_t> pin(const full_key& key, std::uint16_t group = 0);
  void unpin(std::uint32_t slot);
  [[nodiscard]] const std::byte* pinned_bytes(std::uint32_t slot) const;

  node& at;
  instance_number in;
  session_number number;
  std::uint64_t block_bytes;

 private:
  [[nodiscard]] std::vector<memory::submission> touch_entries(std::span<const full_key> chain,
                                                              std::size_t resident) const;
  [[nodiscard]] bool is_present(const full_key& key) const;

  std::uint32_t request_ = 0;
};

}  // namespace cenote::blocks::testing
