#include "device/cuda/launcher.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <utility>

namespace cenote::cuda {

namespace {

constexpr std::uint64_t smallest_table = 16 << 10;  // bytes: a layer of 2,000 pages
constexpr std::size_t tables_at_once = 64;          // a model's layers
constexpr int usual_multiprocessors = 108;

}  // namespace

launcher::launcher(context_ref in, cu_module module) noexcept
    : context_(std::move(in)),
      module_(module),
      few_groups_(static_cast<std::uint32_t>(
          std::max(context_->attribute(multiprocessor_count, usual_multiprocessors) / 2, 1))) {}

launcher::~launcher() {
  const context::scope inside(*context_);
  used_.clear();
  context_->api().cuModuleUnload(module_);
}

result<std::unique_ptr<launcher>> launcher::load(const context_ref& in, std::span<const std::byte> image) {
  if (image.empty()) return fail(error_code::unsupported, "this was built without nvcc, so there are no kernels");
  const context::scope inside(*in);
  cu_module module = nullptr;
  if (auto good = in->check(in->api().cuModuleLoadData(&module, image.data()), "cuModuleLoadData"); !good) {
    return fail(error_code::unsupported, "no kernels for this GPU and driver: " + good.error().message());
  }
  auto made = std::unique_ptr<launcher>(new launcher(in, module));
  if (auto found = made->find_kernels(); !found) return std::unexpected(found.error());
  return made;
}

result<void> launcher::find_kernels() {
  const std::array<std::pair<const char*, cu_function*>, 4> wanted{{{"cenote_move_16", &move_16_},
                                                                    {"cenote_move_4", &move_4_},
                                                                    {"cenote_move_1", &move_1_},
                                                                    {"cenote_be_busy", &be_busy_}}};
  for (const auto& [name, place] : wanted) {
    if (context_->api().cuModuleGetFunction(place, module_, name) != success) {
      return fail(error_code::unsupported, std::string("the kernels' image has no ") + name);
    }
  }
  return {};
}

result<std::unique_ptr<launch_tables>> launcher::take_tables(std::uint64_t bytes) {
  {
    const std::lock_guard guard(lock_);
    const auto found =
        std::ranges::find_if(used_, [&](const auto& each) { return each->bytes() >= bytes && each->is_free(); });
    if (found != used_.end()) {
      std::unique_ptr<launch_tables> taken = std::move(*found);
      used_.erase(found);
      return taken;
    }
  }
  const std::size_t count = bytes <= smallest_table ? tables_at_once : 1;
  auto made = launch_tables::create(context_, std::bit_ceil(std::max(bytes, smallest_table)), count);
  if (!made) return std::unexpected(made.error());
  std::unique_ptr<launch_tables> taken = std::move(made->back());
  made->pop_back();
  const std::lock_guard guard(lock_);
  std::ranges::move(*made, std::back_inserter(used_));
  return taken;
}

result<void> launcher::launch(cu_function kernel, std::uint32_t groups, cu_stream queue, const void* argument) const {
  void* arguments[] = {const_cast<void*>(argument)};
  return context_->check(context_->api().cuLaunchKernel(kernel, groups, 1, 1, kernels::threads_of_a_group, 1, 1, 0,
                                                        queue, arguments, nullptr),
                         "cuLaunchKernel");
}

result<prepared_batch> launcher::prepare(cu_stream queue, const paged_layout& layout, const move_list& moves,
                                         layer_range layers, kernels::move_way way, std::uint64_t row_bytes) {
  prepared_batch made{kernels::plan(layout, moves, layers, way, row_bytes), nullptr};
  if (made.launch.move.units() > kernels::most_units) {
    return fail(error_code::limit_exceeded, "more pages and layers than one launch takes");
  }
  const std::uint64_t bytes = kernels::table_bytes(layout, moves, layers);
  auto tables = take_tables(bytes);
  if (!tables) return std::unexpected(tables.error());
  made.tables = std::move(*tables);
  kernels::write_tables(layout, moves, layers, made.tables->host(), made.tables->device(), made.launch.move);
  if (auto uploaded = made.tables->upload(queue, bytes); !uploaded) {
    (void)finish(queue, std::move(made));
    return std::unexpected(uploaded.error());
  }
  return made;
}

result<void> launcher::start(cu_stream queue, const kernels::launch& job, std::uint32_t most_groups) const {
  cu_function kernel = job.word == 16 ? move_16_ : job.word == 4 ? move_4_ : move_1_;
  return launch(kernel, kernels::groups_for(job.move.units(), most_groups), queue, &job.move);
}

/// Recorded also after a refusal: the copy of the tables may be under way.
result<void> launcher::finish(cu_stream queue, prepared_batch&& batch) {
  const auto recorded = batch.tables->end_after(queue);
  const std::lock_guard guard(lock_);
  used_.push_back(std::move(batch.tables));
  return recorded;
}

result<void> launcher::move(cu_stream queue, const paged_layout& layout, const move_list& moves, layer_range layers,
                            kernels::move_way way, std::uint32_t most_groups) {
  auto batch = prepare(queue, layout, moves, layers, way, 0);
  if (!batch) return std::unexpected(batch.error());
  const auto started = start(queue, batch->launch, most_groups);
  const auto finished = finish(queue, std::move(*batch));
  return started ? finished : started;
}

result<void> launcher::be_busy(cu_stream queue, const kernels::busy_work& work) const {
  return launch(be_busy_, all_groups(), queue, &work);
}

}  // namespace cenote::cuda
