// A network over UCX that writes down what it hears.
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/ucx/network.hpp"

namespace cenote::testing {

/// What it heard is read under its mutex, or in the condition of wait().
class station {
 public:
  explicit station(endpoint listen = {"127.0.0.1", 0}) {
    peer::network_events events;
    events.addresses = [this](const endpoint& name, const result<std::vector<endpoint>>& found) {
      note([&] { addresses.insert_or_assign(name.text(), found); });
    };
    events.opened = [this](peer::link_id which, bool is_dialled, const endpoint&) {
      note([&] {
        (is_dialled ? dialled : accepted).push_back(which);
        if (const auto& call = is_dialled ? on_dialled : on_accepted) call(which);
      });
    };
    events.closed = [this](peer::link_id which, const error& why) { note([&] { closed.emplace_back(which, why); }); };
    events.heard = [this](peer::link_id from, std::span<const std::byte> frame) {
      note([&] {
        heard[from].emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
        if (on_frame) on_frame(from, frame);
      });
    };
    events.carries_blocks = [this](peer::link_id which) { note([&] { carrying.push_back(which); }); };
    events.expects = [this](peer::link_id, const peer::piece_header& head, std::size_t bytes) {
      const std::lock_guard lock(mutex);
      if (throws_away) return std::span<std::byte>();
      auto& memory = blocks[head.token];
      memory.resize(head.total);
      return std::span(memory).subspan(head.offset, bytes);
    };
    events.landed = [this](peer::link_id, const peer::piece_header& head, std::span<const std::byte> piece) {
      note([&] {
        landed[head.token] += piece.size();
        ++pieces[head.token];
        landed_bytes += piece.size();
      });
    };
    events.sent = [this](peer::link_id, std::uint64_t token, const result<void>& how) {
      note([&] { sent.emplace_back(token, how.has_value()); });
    };
    auto variables = ucx::environment_of(listen, {}, {});
    BOOST_REQUIRE(variables);
    auto made = ucx::start_network({.listen = listen, .variables = *variables}, std::move(events));
    BOOST_REQUIRE_MESSAGE(made, (made ? "" : made.error().describe()));
    net = std::move(*made);
  }
  station(const station&) = delete;
  station& operator=(const station&) = delete;
  ~station() { net->stop(); }

  template <class Condition>
  [[nodiscard]] bool wait(Condition until) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), until);
  }

  /// Of a list of what was heard.
  template <class List>
  [[nodiscard]] std::size_t count(List station::*what) {
    const std::lock_guard lock(mutex);
    return (this->*what).size();
  }
  [[nodiscard]] std::size_t all_landed() {
    const std::lock_guard lock(mutex);
    return landed_bytes;
  }
  /// In a condition of wait().
  [[nodiscard]] bool has_closed(peer::link_id which) const {
    return std::ranges::any_of(closed, [&](const auto& each) { return each.first == which; });
  }

  std::unique_ptr<ucx::network> net;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<peer::link_id> dialled, accepted, carrying;
  std::vector<std::pair<peer::link_id, error>> closed;
  std::map<std::string, result<std::vector<endpoint>>> addresses;  ///< by the name
  std::map<peer::link_id, std::vector<std::string>> heard;
  std::map<std::uint64_t, std::vector<std::byte>> blocks;
  std::map<std::uint64_t, std::size_t> landed, pieces;
  std::size_t landed_bytes = 0;
  std::vector<std::pair<std::uint64_t, bool>> sent;
  bool throws_away = false;
  // Called with the mutex held, on the network's thread; to be set before anything can happen.
  std::function<void(peer::link_id)> on_dialled, on_accepted;
  std::function<void(peer::link_id, std::span<const std::byte>)> on_frame;

 private:
  template <class Note>
  void note(Note what) {
    const std::lock_guard lock(mutex);
    what();
    changed.notify_all();
  }
};

}  // namespace cenote::testing
