#include "worker/gpu_watch.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr auto patience = std::chrono::seconds(1);

}  // namespace

/// Also the thread's, which may outlive the object.
struct gpu_watch::state {
  enum class standing : std::uint8_t { unknown, there, none };

  opener open;
  std::chrono::milliseconds pause;
  std::mutex mutex;
  std::condition_variable changed;
  standing known = standing::unknown;
  bool is_wanted = false;  ///< the thread shall find out whether there is a driver
  bool has_news = false;   ///< somebody is asked for who was not before
  bool stop = false;
  bool has_ended = false;
  std::map<pid_t, gpu_answer> asked;
};

gpu_watch::gpu_watch(opener open, std::chrono::milliseconds pause) : shared_(std::make_shared<state>()) {
  shared_->open = std::move(open);
  shared_->pause = pause;
}

gpu_watch::~gpu_watch() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  if (!thread_.joinable()) return;
  const bool ended = shared_->changed.wait_for(lock, patience, [&] { return shared_->has_ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void gpu_watch::prepare() {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->known == state::standing::none) shared_->known = state::standing::unknown;  // it may have come since
  shared_->is_wanted = true;
  start();
  shared_->changed.notify_all();
}

/// Under the lock.
void gpu_watch::start() {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([shared = shared_] { run(shared); });
  } catch (const std::system_error& why) {
    shared_->known = state::standing::none;
    log_warn(logger("gpu"), "no thread that asks the GPUs' driver", {{"reason", why.what()}});
  }
}

gpu_answer gpu_watch::ask(pid_t process) {
  if (process == 0) return gpu_answer::nobody_knows;
  const std::lock_guard lock(shared_->mutex);
  start();
  if (shared_->known == state::standing::none) return gpu_answer::nobody_knows;
  const auto [found, is_new] = shared_->asked.try_emplace(process, gpu_answer::unknown);
  if (is_new) {
    shared_->has_news = true;
    shared_->changed.notify_all();
  }
  const gpu_answer answer = found->second;
  if (answer == gpu_answer::gone) shared_->asked.erase(found);
  return answer;
}

void gpu_watch::forget(pid_t process) {
  const std::lock_guard lock(shared_->mutex);
  shared_->asked.erase(process);
}

/// One look for all who are asked for now.
void gpu_watch::look(state& all, gpu_processes& at) {
  std::vector<pid_t> wanted;
  {
    const std::lock_guard lock(all.mutex);
    all.has_news = false;
    for (const auto& [process, answer] : all.asked) wanted.push_back(process);
  }
  const auto found = at.list();
  if (!found) log_debug(logger("gpu"), "the driver does not say who uses it", {{"reason", found.error().describe()}});
  const std::lock_guard lock(all.mutex);
  for (const pid_t process : wanted) {
    const auto its = all.asked.find(process);
    if (its == all.asked.end()) continue;
    if (!found) {
      its->second = gpu_answer::unknown;
    } else {
      its->second = std::ranges::find(*found, process) == found->end() ? gpu_answer::gone : gpu_answer::listed;
    }
  }
}

void gpu_watch::run(const std::shared_ptr<state>& shared) {
  state& all = *shared;
  std::unique_ptr<gpu_processes> driver;
  std::string said;  // a state is told once
  std::unique_lock lock(all.mutex);
  const auto is_busy = [&] { return all.stop || all.is_wanted || !all.asked.empty(); };
  while (true) {
    all.changed.wait(lock, is_busy);
    if (all.stop) break;
    const bool is_new = std::exchange(all.is_wanted, false);
    const bool looks = !all.asked.empty();
    lock.unlock();
    if (!driver && (is_new || looks)) {
      auto opened = all.open();
      if (opened) {
        driver = std::move(*opened);
      } else if (std::string why = opened.error().describe(); why != said) {
        said = std::move(why);
        log_info(logger("gpu"), "nobody says which processes use GPUs", {{"reason", said}});
      }
    }
    if (driver && looks) look(all, *driver);
    lock.lock();
    all.known = driver ? state::standing::there : state::standing::none;
    if (!driver) all.asked.clear();
    if (looks) all.changed.wait_for(lock, all.pause, [&] { return all.stop || all.is_wanted || all.has_news; });
    if (driver && !all.is_wanted && all.asked.empty()) {
      lock.unlock();
      driver.reset();
      lock.lock();
    }
  }
  lock.unlock();
  driver.reset();
  lock.lock();
  all.has_ended = true;
  all.changed.notify_all();
}

}  // namespace cenote
