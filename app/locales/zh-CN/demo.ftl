### 导出文档。

demo-title = 导出文档
demo-intro = 粘贴 Markdown，选择格式，查看每一步。对同一文本再次点击会打开同一个导出。
demo-options = 选项
demo-field-title = 标题
demo-field-format = 格式
demo-format-pdf = 适合打印
demo-format-html = 单个文件
demo-open-file = 打开文件
demo-submit = 导出为 { $format }
demo-mishap = 要发生什么
demo-mishap-none = 一切正常
demo-mishap-storage-fails = 存储失败两次
demo-mishap-storage-fails-hint = 重试后成功
demo-mishap-slow-down = 服务方要求放慢
demo-mishap-slow-down-hint = 按要求等待
demo-mishap-storage-refuses = 存储拒绝一次
demo-mishap-storage-refuses-hint = 失败；操作员可重试
demo-sample-title = 第三季度调研笔记
demo-not-allowed = 您的角色只能查看，不能导出。可联系管理员调整。
