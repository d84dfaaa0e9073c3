#include "device/cuda/launcher.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace cenote::cuda {

namespace {

constexpr std::uint64_t smallest_table = 16 << 10;  // bytes

}  // namespace

class launcher::tables {
 public:
  [[nodiscard]] static result<std::unique_ptr<tables>> create(const context_ref& in, std::uint64_t bytes) {
    auto after = cuda_event::create(in);
    if (!after) return std::unexpected(after.error());
    auto made = std::make_unique<tables>(in, bytes, std::move(*after));
    void* host = nullptr;
    if (auto good = in->check(in->api().cuMemHostAlloc(&host, bytes, 0), "cuMemHostAlloc"); !good) {
      return std::unexpected(good.error());
    }
    made->host_ = static_cast<std::byte*>(host);
    if (auto good = in->check(in->api().cuMemAlloc_v2(&made->device_, bytes), "cuMemAlloc"); !good) {
      return std::unexpected(good.error());
    }
    return made;
  }
  tables(context_ref in, std::uint64_t size, std::shared_ptr<cuda_event> after) noexcept
      : context_(std::move(in)), bytes_(size), after_(std::move(after)) {}
  tables(const tables&) = delete;
  tables& operator=(const tables&) = delete;
  ~tables() {
    const context::scope inside(*context_);
    if (device_ != nullptr) context_->api().cuMemFree_v2(device_);
    if (host_ != nullptr) context_->api().cuMemFreeHost(host_);
  }

  [[nodiscard]] std::byte* host() const noexcept { return host_; }
  [[nodiscard]] std::byte* device() const noexcept { return device_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] result<void> end_after(cu_stream on) {
    return context_->check(context_->api().cuEventRecord(after_->handle(), on), "cuEventRecord");
  }
  /// The kernel that read it has ended.
  [[nodiscard]] bool is_free() const { return context_->api().cuEventQuery(after_->handle()) == success; }

 private:
  context_ref context_;
  std::uint64_t bytes_;
  std::shared_ptr<cuda_event> after_;
  std::byte* host_ = nullptr;
  cu_pointer device_ = nullptr;
};

launcher::launcher(context_ref in, cu_module module) noexcept : context_(std::move(in)), module_(module) {}

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
  const std::array<std::pair<const char*, cu_function*>, 3> wanted{
      {{"cenote_move_16", &move_16_}, {"cenote_move_4", &move_4_}, {"cenote_move_1", &move_1_}}};
  for (const auto& [name, place] : wanted) {
    if (context_->api().cuModuleGetFunction(place, module_, name) != success) {
      return fail(error_code::unsupported, std::string("the kernels' image has no ") + name);
    }
  }
  return {};
}

result<std::unique_ptr<launcher::tables>> launcher::take_tables(std::uint64_t bytes) {
  {
    const std::lock_guard guard(lock_);
    const auto found =
        std::ranges::find_if(used_, [&](const auto& each) { return each->bytes() >= bytes && each->is_free(); });
    if (found != used_.end()) {
      std::unique_ptr<tables> taken = std::move(*found);
      used_.erase(found);
      return taken;
    }
  }
  return tables::create(context_, std::bit_ceil(std::max(bytes, smallest_table)));
}

result<void> launcher::start(cu_stream on, kernels::launch& what, const tables& with, std::uint64_t table_bytes) {
  const driver& api = context_->api();
  const cu_result copied = api.cuMemcpyAsync(with.device(), with.host(), table_bytes, on);
  if (auto good = context_->check(copied, "cuMemcpyAsync"); !good) return good;
  cu_function kernel = what.word == 16 ? move_16_ : what.word == 4 ? move_4_ : move_1_;
  void* arguments[] = {&what.move};
  const auto groups = static_cast<unsigned>(what.move.groups());
  return context_->check(
      api.cuLaunchKernel(kernel, groups, 1, 1, kernels::threads_of_a_group, 1, 1, 0, on, arguments, nullptr),
      "cuLaunchKernel");
}

result<void> launcher::move(cu_stream on, const paged_layout& layout, const move_list& moves, layer_range layers,
                            bool to_blocks) {
  kernels::launch what = kernels::plan(layout, moves, layers, to_blocks);
  if (what.move.groups() > kernels::most_groups) {
    return fail(error_code::limit_exceeded, "more pages and layers than one launch takes");
  }
  const context::scope inside(*context_);
  const std::uint64_t bytes = kernels::table_bytes(layout, moves, layers);
  auto with = take_tables(bytes);
  if (!with) return std::unexpected(with.error());
  kernels::write_tables(layout, moves, layers, (*with)->host(), (*with)->device(), what.move);
  const auto started = start(on, what, **with, bytes);
  // Recorded also after a refusal: the copy of the tables may be under way.
  const auto recorded = (*with)->end_after(on);
  const std::lock_guard guard(lock_);
  used_.push_back(std::move(*with));
  return started ? recorded : started;
}

}  // namespace cenote::cuda
