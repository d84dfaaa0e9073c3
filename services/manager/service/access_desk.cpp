#include "services/manager/service/access_desk.hpp"

#include <pthread.h>

#include <exception>
#include <utility>

#include "config/logging.hpp"

namespace cenote::manager {

namespace {

access_refusal full_desk() {
  return {.fault = access_fault::too_many,
          .message = "too many passwords wait to be checked; try again later",
          .retry_after = std::chrono::seconds(1)};
}

access_refusal closed_desk() {
  return {.fault = access_fault::not_ready, .message = "the manager stops"};
}

}  // namespace

access_desk::access_desk(const access_settings& settings) : control_(settings), thread_([this] { run(); }) {}

bool access_desk::add(waiting_check& check) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_ || waiting_.size() >= most_waiting) return false;
  waiting_.push_back(std::move(check));
  wake_.notify_one();
  return true;
}

void access_desk::check(const call_evidence& evidence, const manager_registry& registry, rpc_role role,
                        access_receiver receive) {
  waiting_check check{.address = std::string(evidence.address),
                      .certificate_name = std::string(evidence.certificate_name),
                      .authorization = std::string(evidence.authorization),
                      .registry = registry,
                      .role = role,
                      .receive = std::move(receive),
                      .end = std::chrono::steady_clock::now() + longest_wait};
  if (!add(check)) check.receive(std::unexpected(full_desk()));
}

bool access_desk::post(std::function<void()> task) {
  waiting_check check{.task = std::move(task)};
  return add(check);
}

void access_desk::handle(waiting_check& check) {
  if (check.task) return check.task();
  const auto now = std::chrono::steady_clock::now();
  if (now > check.end) return check.receive(std::unexpected(full_desk()));
  const call_evidence evidence{
      .address = check.address, .certificate_name = check.certificate_name, .authorization = check.authorization};
  check.receive(control_.check(evidence, check.registry, check.role, now));
}

void access_desk::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-access");
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
    if (is_stopping_) return;
    waiting_check check = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      handle(check);
    } catch (const std::exception& failure) {
      log_warn(logger("manager"), "a password could not be checked", {{"reason", failure.what()}});
    }
  }
}

void access_desk::stop() noexcept {
  std::deque<waiting_check> waiting;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    waiting.swap(waiting_);
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  for (const waiting_check& check : waiting) {
    if (check.receive) check.receive(std::unexpected(closed_desk()));
  }
}

}  // namespace cenote::manager
