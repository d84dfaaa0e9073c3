#include "tiers/blocks/provisioner.hpp"

#include <pthread.h>

#include <algorithm>
#include <exception>

namespace cenote::blocks {

namespace {

constexpr std::uint64_t fill_first = std::uint64_t{32} << 20;  // slabs up to this size are touched before use
constexpr std::uint64_t fill_step = std::uint64_t{8} << 20;    // so that a waiting request never waits long
constexpr std::uint64_t pin_step = std::uint64_t{32} << 20;    // some 10 ms; a block across two pieces gains nothing

}  // namespace

provisioner::provisioner(provisioner_options options, keeper_put keep, keeper_drop drop, on_outcome done,
                         transfer_hooks hooks, instance_drop forget)
    : options_(std::move(options)),
      keep_(std::move(keep)),
      drop_(std::move(drop)),
      done_(std::move(done)),
      hooks_(std::move(hooks)),
      forget_(std::move(forget)) {
  if (options_.populate && options_.ahead.capacity != 0) {
    options_.ahead.huge_pages = options_.huge_pages;
    options_.ahead.numa_node = options_.numa_node;
    reserve_ = std::make_unique<reserve>(options_.ahead);
  }
  thread_ = std::thread([this] { run(); });
}

provisioner::~provisioner() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void provisioner::fill_reserve(std::vector<reserve::piece> held) {
  if (reserve_) {
    reserve_->start(std::move(held));
  } else if (options_.ahead.drop) {
    for (const reserve::piece& each : held) options_.ahead.drop(each.id);
  }
}

populate_status provisioner::populated() const {
  if (!reserve_) return {};
  populate_status found = reserve_->status();
  const std::uint64_t unfilled = unfilled_bytes_.load(std::memory_order_relaxed);
  found.bytes -= std::min(found.bytes, unfilled);
  if (unfilled > 0 && found.at == populate_status::phase::done) found.at = populate_status::phase::going_on;
  return found;
}

void provisioner::submit(std::vector<slab_request> requests) {
  for (slab_request& request : requests) {
    // std::function wants copyable targets
    submit_task([this, held = std::make_shared<slab_request>(std::move(request))] { attempt(std::move(*held)); });
  }
}

void provisioner::submit_task(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void provisioner::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-slabs");
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !tasks_.empty() || !unfilled_.empty() || !unpinned_.empty(); });
      if (stopping_) return;
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
    }
    try {
      work(task);
    } catch (const std::exception& thrown) {
      // Not touched or not registered ahead is only slower.
      if (!task && !unfilled_.empty()) {
        unfilled_.pop_front();
      } else if (!task && !unpinned_.empty()) {
        unpinned_.pop_front();
      }
      if (options_.on_exception) options_.on_exception(thrown.what());
    }
  }
}

void provisioner::work(const std::function<void()>& task) {
  if (task) {
    task();
  } else if (!unfilled_.empty()) {
    populate_some();
  } else {
    pin_some();
  }
}

/// Whatever happens, the tier gets its answer: it would wait for ever.
void provisioner::attempt(slab_request request) {
  const auto what = request.what;
  const auto slab = request.slab;
  try {
    carry_out(std::move(request));
  } catch (const std::exception& thrown) {
    done_({what, slab, {}, fail(error_code::internal, std::string("an exception: ") + thrown.what())});
    throw;
  }
}

void provisioner::carry_out(slab_request request) {
  if (request.what == slab_request::kind::create) {
    create(request.slab);
    return;
  }
  if (request.what == slab_request::kind::forget) {
    forget_instance(request);
    return;
  }
  const auto bytes = request.memory.size();
  forget({request.memory.data(), bytes});
  // Clients may keep their mappings: the pages go now. Memory of a device stays as long as one of them does.
  if (request.memory.is_host()) request.memory.file().punch(0, bytes, "worker.slab_punched"_point);
  request.memory = {};
  if (reserve_) reserve_->slab_gone(bytes);
  slab_outcome outcome{slab_request::kind::drop, request.slab, {}, drop_(request.slab)};
  done_(std::move(outcome));
}

void provisioner::forget_instance(slab_request& request) {
  // Whatever becomes of the keeper's entry: no later worker takes it over. Clients that kept their mappings find
  // nothing in the index, and the pages go now.
  request.versions.retire();
  const auto give_back = [](const memory::shared_file& each) {
    each.punch(memory::page_bytes, each.size() - memory::page_bytes, "instance.punch"_point);
  };
  give_back(request.index);
  give_back(request.versions.file());
  request.index = {};
  request.versions = {};
  slab_outcome outcome{slab_request::kind::forget, request.slab, {}, {}};
  if (forget_) outcome.status = forget_(request.slab.instance);
  done_(std::move(outcome));
}

/// Nobody may use it before the keeper has it: it would be lost with this process.
void provisioner::create_elsewhere(const slab_description& slab) {
  slab_outcome outcome{slab_request::kind::create, slab, {}, {}};
  auto memory = options_.make_elsewhere(slab);
  outcome.status = memory ? keep_(slab, memory->fd(), memory->size()) : std::unexpected(memory.error());
  if (outcome.status) outcome.memory = std::move(*memory);
  done_(std::move(outcome));
}

void provisioner::create(const slab_description& slab) {
  if (options_.make_elsewhere) return create_elsewhere(slab);
  slab_outcome outcome;
  outcome.slab = slab;
  std::uint64_t touched = 0;
  auto memory = make_memory(slab, touched);
  if (!memory) {
    if (reserve_) reserve_->slab_gone(slab.segment_bytes());
    outcome.status = std::unexpected(memory.error());
    done_(std::move(outcome));
    return;
  }
  if (reserve_) reserve_->slab_found(memory->size() - slab.segment_bytes());  // 2 MiB pages
  const bool fill_now = options_.populate && memory->size() - touched <= fill_first;
  if (fill_now && touched < memory->size()) {
    memory->populate(touched, memory->size() - touched, memory::access::read_write);
  }
  outcome.status = keep_(slab, memory->fd(), memory->size());
  if (outcome.status) {
    if (options_.populate && !fill_now) fill_later(*memory, touched);
    if (fill_now) pin_later({memory->data(), memory->size()});
    outcome.memory = std::move(*memory);
  } else if (reserve_) {
    reserve_->slab_gone(memory->size());
  }
  done_(std::move(outcome));
}

/// `touched`: bytes at its beginning that need not be.
result<memory::segment> provisioner::make_memory(const slab_description& slab, std::uint64_t& touched) {
  auto spare =
      reserve_ ? reserve_->take(slab.segment_bytes(), slab.segment_bytes(true)) : std::optional<spare_memory>();
  if (spare) {
    touched = spare->memory.size();
    auto made = make_slab_memory(slab, std::move(*spare));
    if (made) touched = std::min(touched, made->size());
    if (made) return made;
    touched = 0;
  }
  return make_slab_memory(slab, options_.huge_pages, options_.numa_node);
}

void provisioner::fill_later(const memory::segment& memory, std::uint64_t first) {
  auto copy = memory.fd().duplicate();
  auto mapped = copy ? memory::segment::map(std::move(*copy), memory.size(), memory::access::read_write)
                     : result<memory::segment>(std::unexpected(copy.error()));
  if (!mapped) return;
  unfilled_.push_back({std::move(*mapped), {memory.data(), memory.size()}, first});
  count_unfilled();
}

void provisioner::pin_later(std::span<std::byte> memory) {
  if (hooks_.pin) unpinned_.push_back(memory);
}

void provisioner::adopt(std::span<std::byte> memory) {
  if (reserve_) reserve_->slab_found(memory.size());
  submit_task([this, memory] { pin_later(memory); });
}

void provisioner::forget(std::span<std::byte> memory) {
  std::erase_if(unfilled_, [&](const populating& each) { return each.of_store.data() == memory.data(); });
  count_unfilled();
  std::erase_if(unpinned_, [&](std::span<std::byte> each) {
    return each.data() >= memory.data() && each.data() < memory.data() + memory.size();
  });
  if (hooks_.unpin) hooks_.unpin(memory);
}

void provisioner::populate_some() {
  populating& next = unfilled_.front();
  const std::uint64_t bytes = std::min(fill_step, next.memory.size() - next.offset);
  const bool filled = next.memory.populate(next.offset, bytes, memory::access::read_write);
  next.offset += bytes;
  if (!filled || next.offset >= next.memory.size()) {
    if (filled) pin_later(next.of_store);
    unfilled_.pop_front();
  }
  count_unfilled();
}

void provisioner::count_unfilled() noexcept {
  std::uint64_t bytes = 0;
  for (const populating& each : unfilled_) bytes += each.memory.size() - each.offset;
  unfilled_bytes_.store(bytes, std::memory_order_relaxed);
}

void provisioner::pin_some() {
  std::span<std::byte>& next = unpinned_.front();
  const std::size_t bytes = std::min<std::size_t>(pin_step, next.size());
  hooks_.pin(next.first(bytes));
  next = next.subspan(bytes);
  if (next.empty()) unpinned_.pop_front();
}

}  // namespace cenote::blocks
