// Random operations of several sessions, for the property, recovery and kill tests.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::testing {

/// Clients that do whatever a client may do, from a seed. A block that is found must hold the contents of its key.
class random_work {
 public:
  random_work(node& node, std::uint64_t seed, std::uint64_t keys) : at_(node), random_(seed), keys_(keys) {}

  void add_client(instance_number instance) { clients_.push_back(std::make_unique<client>(at_, instance, 32)); }
  /// One operation of one client. What is wrong, in words; empty when nothing is.
  std::string step();
  /// After a restart: clients forget what they were doing and say so, as a library does.
  std::string after_restart();
  /// Reads every key of every client; the number of hits, or -1 for a wrong byte.
  std::int64_t read_all();
  [[nodiscard]] std::vector<std::unique_ptr<client>>& clients() noexcept { return clients_; }
  void reseed(std::uint64_t seed) { random_.seed(seed); }
  /// Clears every pin slot of every client, those of a process that was killed too.
  void unpin_all();

  /// Parts of a block that a client reserved and has not said to be written.
  struct held {
    std::size_t who;
    blank block;
    full_key key;
    std::uint64_t parts;
  };

  bool may_drop_sessions = true;
  std::function<void(const held&, bool begins)> on_writing;  ///< a client begins, or ends, to write

 private:
  struct pinned {
    std::size_t who;
    std::uint32_t slot;
    full_key key;
  };
  full_key any_key();
  void fill_part(const client& client, const held& what);
  std::string put(std::size_t who);
  std::string reserve(std::size_t who);
  std::string finish_one();
  std::string replace_session(std::size_t who);
  void forget(std::size_t who);

  node& at_;
  std::mt19937_64 random_;
  std::uint64_t keys_;
  std::vector<std::unique_ptr<client>> clients_;
  std::vector<held> writing_;
  std::vector<pinned> pins_;
};

}  // namespace cenote::blocks::testing
