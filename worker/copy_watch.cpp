#include "worker/copy_watch.hpp"

#include <algorithm>
#include <ctime>

#include "config/logging.hpp"
#include "core/copy_measurement.hpp"
#include "core/machine_choice.hpp"

namespace cenote {

namespace {

std::chrono::nanoseconds process_cpu() noexcept {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

void log_choice(const machine_decisions& decisions, std::chrono::nanoseconds duration) {
  const auto name = [&](copy_case kind) { return name_of_candidate(kind, decisions.decision_of(kind).number); };
  log_info(logger("worker"), "copies are measured",
           {{"read", name(copy_case::read)},
            {"write", name(copy_case::write)},
            {"checksum", name(copy_case::checksum)},
            {"hashed_copy", name(copy_case::hashed_copy)},
            {"took_ms", std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()}});
}

}  // namespace

bool copy_schedule::is_due(clock::time_point now, duration cpu) noexcept {
  if (now < look_at_) return false;
  const std::chrono::duration<double> wall = now - last_look_;
  const std::chrono::duration<double> busy = cpu - last_cpu_;
  const bool has_looked = last_look_ >= due_;
  last_look_ = now;
  last_cpu_ = cpu;
  look_at_ = now + idle_look;
  return has_looked && busy < idle_share * wall;
}

void copy_schedule::confirm(clock::time_point now) noexcept {
  wait_ = std::min(4 * wait_, longest_wait);
  due_ = look_at_ = now + wait_;
}

void copy_schedule::doubt(clock::time_point now) noexcept {
  wait_ = first_wait;
  due_ = look_at_ = now + wait_;
}

copy_watch::copy_watch(const std::filesystem::path& runtime_dir, page_kind pages)
    : file_(decisions_file(runtime_dir)), pages_(pages), machine_(machine_identity()), schedule_(clock::now()) {}

void copy_watch::start() {
  if (auto loaded = load_decisions(file_, machine_); loaded && loaded->is_measured()) {
    decisions_ = std::move(*loaded);
    publish();
  } else {
    measure();
  }
}

void copy_watch::advance(clock::time_point now) {
  if (!schedule_.is_due(now, process_cpu())) return;
  measure();
  if (decisions_.is_in_doubt()) {
    schedule_.doubt(clock::now());
  } else {
    schedule_.confirm(clock::now());
  }
}

void copy_watch::measure() {
  const auto begin = clock::now();
  const auto has_changed = measure_round(decisions_);
  if (!has_changed) {
    log_warn(logger("worker"), "copies are not measured", {{"reason", has_changed.error().describe()}});
    return;
  }
  publish();
  if (*has_changed) log_choice(decisions_, clock::now() - begin);
  if (auto saved = save_decisions(file_, decisions_, machine_); !saved)
    log_warn(logger("worker"), "the measurements of copies are not saved", {{"reason", saved.error().describe()}});
}

void copy_watch::publish() {
  use_choice(words_of(decisions_.choice(pages_)));
  std::atomic_store(&snapshot_, std::make_shared<const machine_decisions>(decisions_));
}

}  // namespace cenote
