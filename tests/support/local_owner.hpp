// An owner of blocks in the test's own process, on nothing but memory/: enough of a node to test the client without
// one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "device/device.hpp"
#include "memory/index.hpp"
#include "memory/segment.hpp"
#include "memory/session_memory.hpp"
#include "memory/slab_mapping.hpp"
#include "memory/version_table.hpp"
#include "transport/local/attach.hpp"

namespace cenote::testing {

/// A key of 32 bytes that stands for `number`.
[[nodiscard]] std::vector<std::byte> key_of(std::uint64_t number);
/// keys[first, first + count) back to back.
[[nodiscard]] std::vector<std::byte> keys_of(std::uint64_t first, std::size_t count);
/// The batch over what keys_of made.
[[nodiscard]] inline key_batch batch_of(const std::vector<std::byte>& keys) {
  return {keys.data(), keys.size() / 32, 32};
}

/// Owns one slab, index, versions and one session. publish/condemn: one thread.
class local_owner {
 public:
  static constexpr std::uint32_t slab_index = 1;

  /// `home`: the device whose memory the slab is; null: the host's.
  local_owner(std::uint32_t blocks, std::uint64_t stride, std::uint32_t pin_slots, device* home = nullptr);

  [[nodiscard]] memory::index_reader reader() const { return index_.reader(); }
  [[nodiscard]] memory::index_writer& index() { return index_; }
  [[nodiscard]] const memory::version_table& versions() const { return versions_; }
  [[nodiscard]] memory::session_memory session() const { return session_; }
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] std::byte* data(std::uint32_t block) const { return slab_.data() + stride_ * block; }
  [[nodiscard]] static memory::block_ref ref(std::uint32_t block) { return {slab_index, block}; }

  /// Shows a block under a key. Its bytes are written by now.
  void publish(std::uint32_t block, std::span<const std::byte> key, std::uint32_t group = 0);
  /// Condemns a batch; true in each place whose block is blank now, false where a pin kept it.
  std::vector<bool> condemn(std::span<const std::uint32_t> blocks);
  /// The next publication of the block gets the version after this one.
  void set_version(std::uint32_t block, std::uint64_t version) { versions_.set_version(block, version); }

  /// Descriptors of the segments, as an attach brings them.
  [[nodiscard]] const memory::segment& session_segment() const { return session_segment_; }
  [[nodiscard]] const memory::shared_file& index_file() const { return index_.file(); }
  [[nodiscard]] const memory::slab_mapping& slab_segment() const { return slab_; }

 private:
  std::uint32_t blocks_;
  std::uint64_t stride_;
  memory::slab_mapping slab_;
  memory::segment session_segment_;
  memory::index_writer index_;
  memory::version_table versions_;
  memory::session_memory session_;
  std::vector<full_key> keys_;  ///< by block; empty: blank
  std::vector<std::uint32_t> groups_;
};

/// Serves the rings and the socket of a local_owner's session on a thread of its own: one part a block, no eviction.
class local_node {
 public:
  explicit local_node(local_owner& owner, std::uint64_t all_parts = 1);
  local_node(const local_node&) = delete;
  local_node& operator=(const local_node&) = delete;
  ~local_node();

  /// Ends the worker as a kill would: its socket closes, the rings stay.
  void stop();
  /// Starts a worker on the rings as they are.
  void start();

  /// What the client's side of an attach gets. Call once.
  [[nodiscard]] unique_fd take_client_socket() { return std::move(client_socket_); }
  [[nodiscard]] unique_fd submit_bell() const;
  [[nodiscard]] unique_fd complete_bell() const;

  [[nodiscard]] std::uint64_t touched() const { return touched_.load(); }
  /// The entries about prefetches so far, the ends of requests only. One that starts is answered with 0 unless silent.
  [[nodiscard]] std::vector<memory::submission> prefetch_entries() const {
    const std::lock_guard lock(words_mutex_);
    return words_;
  }
  [[nodiscard]] std::uint64_t released() const { return released_.load(); }
  /// What the last release said of parts.
  [[nodiscard]] std::uint64_t released_parts() const { return released_parts_.load(); }
  /// What is reserved is answered once more, to a request that nobody waits for: as a worker does that carries out
  /// again what the one before it had answered.
  void repeat_answers(bool repeat) { repeat_.store(repeat); }
  /// Refuses this many commits with `revoked` before it accepts one.
  void refuse_commits(int count) { refuse_.store(count); }
  /// So many of the keys that it is asked to locate are somewhere, the first ones.
  void reach(std::uint64_t keys) { reach_.store(keys); }
  /// Keys of the requests to locate so far.
  [[nodiscard]] std::uint64_t located() const { return located_.load(); }
  /// The entries about groups of ranks so far.
  [[nodiscard]] std::vector<memory::submission> group_entries() const {
    const std::lock_guard lock(words_mutex_);
    return group_words_;
  }
  /// What joins and questions are answered with: a code, and why. A question that is answered well gets its length.
  void answer_groups(error_code code, std::string why) {
    const std::lock_guard lock(words_mutex_);
    group_code_ = code;
    group_why_ = std::move(why);
  }
  /// So many questions are held back; the one after them brings the answers of all, the newest first.
  void hold_questions(std::size_t count) {
    const std::lock_guard lock(words_mutex_);
    hold_ = count;
  }
  /// Reads its rings no more, until it goes on. Returns when it stands, and is not about to sleep on a ring either.
  void stand_still(bool halt);
  /// First entries of the batches that published keys so far. A node that forgets knows nothing of a batch any more
  /// when the next one comes, as a worker that is replaced between them.
  [[nodiscard]] std::vector<memory::submission> publications() const {
    const std::lock_guard lock(words_mutex_);
    return publications_;
  }
  void forget_publications(bool forgets) { forgets_.store(forgets); }
  /// What is followed has no keys; from now on an answer says that it is over.
  void end_follows() { follows_end_.store(true); }
  /// Commits and finishes are left without an answer.
  void be_silent(bool silent) { silent_.store(silent); }

 private:
  void serve();
  void serve_socket();
  void run(const memory::submission& entry);
  void grant(const memory::submission& entry);
  void commit(const memory::submission& entry);
  void reserve(const memory::submission& entry);
  void finish(const memory::submission& entry);
  void give_back(const memory::submission& entry);
  void forget(const memory::submission& entry);
  void locate(const memory::submission& entry);
  void publish(const memory::submission& entry);
  void run_group(const memory::submission& entry);
  void answer_group(const memory::submission& entry);
  void refuse(const memory::submission& entry, error_code code);
  void empty_slot(std::uint64_t block);
  bool take_blank(std::uint32_t& block);

  local_owner* owner_;
  std::uint64_t all_parts_;
  unique_fd client_socket_;
  unique_fd socket_;
  unique_fd submit_bell_;
  unique_fd complete_bell_;
  std::vector<std::uint32_t> blank_;
  std::uint32_t grant_version_ = 0;
  struct pending {
    std::uint64_t block = 0;
    std::uint32_t version = 0;
    std::uint64_t reserved = 0;
    std::uint64_t written = 0;
    std::uint32_t group = 0;
  };
  std::map<std::vector<std::byte>, pending> pending_;
  std::map<std::vector<std::byte>, std::uint32_t> present_;
  std::uint64_t effects_ = 0;
  std::uint16_t refusal_ = 0;
  std::uint32_t refusal_index_ = 0;
  memory::worker_rings rings_;
  mutable std::mutex words_mutex_;
  std::vector<memory::submission> words_;
  std::vector<memory::submission> group_words_;
  std::vector<memory::submission> held_questions_;
  std::vector<memory::submission> publications_;
  std::uint64_t published_ = 0;  ///< keys
  error_code group_code_ = error_code::ok;
  std::string group_why_;
  std::size_t hold_ = 0;
  std::atomic<std::uint64_t> touched_{0};
  std::atomic<std::uint64_t> released_{0};
  std::atomic<std::uint64_t> released_parts_{0};
  std::atomic<bool> repeat_{false};
  std::atomic<int> refuse_{0};
  std::atomic<bool> silent_{false};
  std::atomic<bool> still_{false};
  std::atomic<bool> stands_{false};
  std::atomic<bool> forgets_{false};
  std::atomic<bool> follows_end_{false};
  std::atomic<std::uint64_t> reach_{0};
  std::atomic<std::uint64_t> located_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cenote::testing
