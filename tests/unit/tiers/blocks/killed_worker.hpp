// A worker in a process of its own that is killed, and what it leaves behind: segments, the keeper's list, a ring.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::testing {

/// What the dead worker leaves with the keeper and in the rings.
struct legacy {
  static constexpr std::uint32_t most_slabs = 96;
  static constexpr std::size_t most_entries = 1100;
  struct event {
    slab_description slab;
    std::uint32_t memory = 0;
    bool dropped = false;
  };
  std::atomic<bool> started;
  std::atomic<std::uint32_t> memories, events, now;
  event log[4 * most_slabs];
  std::atomic<std::uint32_t> in_flight;  ///< entries of the batch under way
  session_number session;
  memory::submission entries[most_entries];
  std::atomic<std::uint64_t> stored;  ///< keys below this one were put, and the put was answered
  char error[256];
};

class killed_worker {
 public:
  /// `spare`: how many slabs a worker may ask for before it is killed.
  killed_worker(node& node, const slab_description& like, std::uint32_t spare) : at_(node) {
    log_ = static_cast<legacy*>(
        ::mmap(nullptr, sizeof(legacy), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    BOOST_REQUIRE(log_ != MAP_FAILED);
    for (std::uint32_t i = 0; i < spare; ++i) spares_.push_back(fresh(like));
    like_ = like;
  }
  ~killed_worker() { ::munmap(log_, sizeof(legacy)); }
  killed_worker(const killed_worker&) = delete;
  killed_worker& operator=(const killed_worker&) = delete;

  /// Runs `work` again and again in a process of its own until it is killed, after `microseconds`. Not recovered yet.
  template <class Work>
  void run(unsigned microseconds, Work work) {
    const pid_t child = begin([&] {
      while (true) {
        if (const std::string wrong = work(*log_); !wrong.empty()) give_up(wrong);
        log_->now = count_of(at_.now);
      }
    });
    while (!log_->started) ::usleep(50);
    ::usleep(microseconds);
    ::kill(child, SIGKILL);
    end(child);
  }

  /// Runs `work` once in a process of its own. True: it did not live to its end. Not recovered yet.
  template <class Work>
  bool run_once(Work work) {
    return end(begin([&] {
      if (const std::string wrong = work(*log_); !wrong.empty()) give_up(wrong);
      log_->now = count_of(at_.now);
      ::_exit(0);
    }));
  }

  /// What the client's ring still holds: the new worker carries it out again. False when there was nothing.
  bool replay(memory::completion& answer) {
    const std::uint32_t count = log_->in_flight.load();
    if (count == 0) return false;
    batch work;
    work.session = log_->session;
    work.entries.assign(log_->entries, log_->entries + count);
    const auto answers = at_.run(std::move(work));
    if (answers.empty()) return false;
    answer = answers.back();
    return true;
  }
  [[nodiscard]] legacy& log() const noexcept { return *log_; }

 private:
  static memory::segment fresh(const slab_description& like) { return std::move(*make_slab_memory(like, false, -1)); }

  template <class Body>
  pid_t begin(Body body) {
    log_->started = false;
    log_->memories = log_->events = log_->in_flight = 0;
    log_->now = count_of(at_.now);
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    hook();
    log_->started = true;
    body();
    ::_exit(0);
  }
  bool end(pid_t child) {
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_REQUIRE(log_->error == std::string());
    BOOST_REQUIRE((WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0));
    inherit();
    return WIFSIGNALED(status);
  }
  [[noreturn]] void give_up(const std::string& wrong) {
    std::strncpy(log_->error, wrong.c_str(), sizeof log_->error - 1);
    ::_exit(3);
  }

  void hook() {
    at_.make_memory = [this](const slab_description& slab) -> result<memory::segment> {
      const std::uint32_t number = log_->memories++;
      if (number >= spares_.size()) ::_exit(0);
      note({slab, number, false});  // the keeper has it before anyone uses it
      return memory::segment::map(std::move(*spares_[number].fd().duplicate()), spares_[number].size(),
                                  memory::access::read_write);
    };
    at_.on_drop = [this](const slab_description& slab) { note({slab, 0, true}); };
    at_.before_run = [this](const batch& work) {
      if (work.entries.size() > legacy::most_entries) ::_exit(4);
      log_->session = work.session;
      std::copy(work.entries.begin(), work.entries.end(), log_->entries);
      log_->in_flight = static_cast<std::uint32_t>(work.entries.size());
    };
    at_.after_run = [this](const batch&) { log_->in_flight = 0; };
  }
  void note(legacy::event what) {
    if (log_->events == std::size(log_->log)) ::_exit(0);
    log_->log[log_->events] = what;
    ++log_->events;
  }
  void inherit() {
    at_.now = boot_time_of(log_->now);
    for (std::uint32_t i = 0; i < log_->events; ++i) {
      const legacy::event& each = log_->log[i];
      const std::pair place(each.slab.instance, each.slab.index);
      if (each.dropped) {
        at_.slabs.erase(place);
      } else {
        auto& memory = spares_[each.memory];
        at_.slabs.insert_or_assign(place, node::kept_slab{each.slab, std::exchange(memory, memory::segment())});
      }
    }
    for (auto& spare : spares_) {
      if (!spare) spare = fresh(like_);
    }
  }

  node& at_;
  slab_description like_;
  std::vector<memory::segment> spares_;
  legacy* log_ = nullptr;
};

}  // namespace cenote::blocks::testing
