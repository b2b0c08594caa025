// An extension of PyTorch: a function with a template in it, an operator of its own, and a function of autograd.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/extension.h>

namespace shop {

template <class T> __attribute__((noinline)) at::Tensor scale(const at::Tensor &values, T by)
{
    return values.mul(by).add(1);
}

__attribute__((noinline)) at::Tensor forward(const at::Tensor &values)
{
    return scale<double>(values, 2).relu();
}

at::Tensor double_up(const at::Tensor &values) { return scale<int64_t>(values, 2); }

struct Twice : torch::autograd::Function<Twice> {
    static at::Tensor forward(torch::autograd::AutogradContext *, at::Tensor values) { return scale<float>(values, 2); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext *, torch::autograd::variable_list gradients)
    {
        return {gradients[0].mul(2)};
    }
};

at::Tensor twice(const at::Tensor &values) { return Twice::apply(values); }

} // namespace shop

TORCH_LIBRARY(shop, library) { library.def("double_up(Tensor values) -> Tensor", &shop::double_up); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    module.def("forward", &shop::forward);
    module.def("twice", &shop::twice);
}
