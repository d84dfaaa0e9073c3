#include "tiers/nvme/thread_engine.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/checksum.hpp"

namespace cenote::nvme {

namespace {

// The whole request, or errno.
int move_all(int descriptor, const io_request& request) {
  std::size_t moved = 0;
  while (moved < request.memory.size()) {
    const auto rest = request.memory.subspan(moved);
    const auto at = static_cast<off_t>(request.offset + moved);
    const ssize_t n = request.kind == io_kind::read ? ::pread(descriptor, rest.data(), rest.size(), at)
                                                    : ::pwrite(descriptor, rest.data(), rest.size(), at);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    moved += static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace

result<std::unique_ptr<thread_engine>> thread_engine::create(const path_file& file, const engine_options& options,
                                                             callback done) {
  std::unique_ptr<thread_engine> engine(new thread_engine(file, std::move(done), options.on_exception));
  const unsigned count = std::clamp(options.queue_depth, 1U, most_threads);
  try {
    for (unsigned i = 0; i < count; ++i) engine->threads_.emplace_back([self = engine.get()] { self->run(); });
  } catch (const std::system_error& failed) {
    return fail(error_code::system, std::string("start a thread for transfers: ") + failed.what());
  }
  return engine;
}

void thread_engine::submit(std::span<const io_request> batch) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push(batch);
  }
  if (batch.size() == 1) {
    wake_.notify_one();
  } else {
    wake_.notify_all();
  }
}

void thread_engine::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  const std::lock_guard lock(stop_mutex_);
  for (std::thread& each : threads_) each.join();
  threads_.clear();
}

void thread_engine::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-nvme");
  std::optional<io_completion> ended;  // and not delivered yet
  run_steps([&] { return step(ended); }, on_exception_);
}

bool thread_engine::step(std::optional<io_completion>& ended) {
  if (!ended) {
    std::optional<io_request> next;
    bool cancelled = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      next = waiting_.pop();
      cancelled = stopping_;
    }
    if (!next) return false;
    ended = cancelled ? io_completion{.tag = next->tag, .error = ECANCELED} : transfer(*next);
  }
  const std::lock_guard lock(callback_mutex_);
  done_({&*ended, 1});
  ended.reset();
  return true;
}

io_completion thread_engine::transfer(const io_request& request) const {
  io_completion out{.tag = request.tag, .error = refusal_of(request, file_bytes_)};
  if (out.error != 0) return out;
  if (request.checksum && request.kind == io_kind::write) out.checksum = checksum_of(request.memory);
  out.error = move_all(descriptor_, request);
  if (request.checksum && request.kind == io_kind::read && out.error == 0) out.checksum = checksum_of(request.memory);
  return out;
}

}  // namespace cenote::nvme
