#include "tiers/nvme/catalog_writer.hpp"

#include <pthread.h>

#include <algorithm>
#include <iterator>

namespace cenote::nvme {

namespace {

// More in one write would not be faster, and RocksDB's buffer could grow beyond its bound by one write.
constexpr std::size_t changes_per_write = 1024;

}  // namespace

catalog_writer::catalog_writer(catalog& into, callback done) : catalog_(into), done_(std::move(done)) {
  thread_ = std::thread([this] { run(); });
}

catalog_writer::~catalog_writer() {
  stop();
}

void catalog_writer::submit(std::vector<catalog_change> changes, std::uint64_t tag) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    waiting_.push_back({std::move(changes), tag});
  }
  wake_.notify_one();
}

void catalog_writer::remember(const instance_spec& spec) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    specs_.push_back(spec);
  }
  wake_.notify_one();
}

void catalog_writer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void catalog_writer::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-catalog");
  while (take_waiting()) {
    if (!tags_.empty()) {
      const auto status = catalog_.apply(changes_);
      done_(tags_, status);
    }
    for (const instance_spec& spec : specs_now_) (void)catalog_.put_instance(spec);  // only inspect misses it
  }
}

bool catalog_writer::take_waiting() {
  changes_.clear();
  tags_.clear();
  specs_now_.clear();
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !specs_.empty(); });
  while (!waiting_.empty()) {
    submission& next = waiting_.front();
    // A submission is never cut in two, however large.
    if (!tags_.empty() && changes_.size() + next.changes.size() > changes_per_write) break;
    std::ranges::move(next.changes, std::back_inserter(changes_));
    tags_.push_back(next.tag);
    waiting_.pop_front();
  }
  if (waiting_.empty()) specs_now_.swap(specs_);
  return !tags_.empty() || !specs_now_.empty();
}

}  // namespace cenote::nvme
